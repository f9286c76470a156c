"""A checkpoint goes into the model that it was trained as, also where every shape agrees."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from forked_worlds import tiny_config, train_rank

from neoxlite.checkpoint.architecture import architecture_of, compare_architecture
from neoxlite.errors import CheckpointError
from neoxlite.model.gpt import GPTModel
from neoxlite.model.spec import ModelSpec


@pytest.fixture(scope="module")
def saved(world: Any, text_data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train 2 iterations on one rank and return the folder of the checkpoint's root."""
    from neoxlite.training.environment import RunFiles

    root = tmp_path_factory.mktemp("architecture") / "ck"
    cfg = tiny_config(root.parent / "run.yml", data_path=text_data, save=str(root), checkpoint_factor=2, train_iters=2)
    world.run(1, train_rank, cfg, RunFiles(), {})
    return root


CHANGES = [
    ({"num_attention_heads": 2}, "num_attention_heads: 4 -> 2"),
    ({"rotary_pct": 1.0}, "rotary_pct: 0.25 -> 1.0"),
    ({"rotary_emb_base": 500000}, "rotary_emb_base: 10000.0 -> 500000.0"),
    ({"pos_emb": "none"}, "pos_emb: 'rotary' -> 'none'"),
    ({"gpt_j_residual": True}, "gpt_j_residual: False -> True"),
    ({"layernorm_epsilon": 1e-3}, "layernorm_epsilon: 1e-05 -> 0.001"),
    ({"activation": "relu"}, "activation: 'gelu' -> 'relu'"),
    ({"bias_gelu_fusion": True}, "bias_gelu_fusion: False -> True"),
]


@pytest.mark.parametrize(("changes", "told"), CHANGES)
def test_a_key_that_changes_no_shape_is_refused_by_name(
    changes: dict[str, Any], told: str, saved: Path, command: Any, config_of: Any, text_data: str, tmp_path: Path
) -> None:
    """Training and evaluation refuse the checkpoint with key and both values."""
    config_of(1, data_path=text_data, load=str(saved), train_iters=4, override_lr_scheduler=True, **changes)
    commands = ["train"] if changes is not CHANGES[0][0] else ["train", "evaluate"]
    for name in commands:
        code, _, err = command(name, str(tmp_path / "tiny.yml"))
        assert code == 2
        assert told in err
        assert ("or finetune: true to take the weights" in err) is (name == "train")
        assert "Traceback" not in err


@pytest.mark.parametrize(
    ("changes", "fit"),
    [
        ({"num_attention_heads": 2, "num_kv_heads": 2}, True),
        ({"num_kv_heads": 2}, False),
        ({"activation": "swish", "pos_emb": "alibi"}, True),
        ({"activation": "swiglu"}, False),
        ({"pos_emb": "learned"}, False),
        ({"parallel_residual": True}, True),
        ({"parallel_residual": True, "shared_norm": True}, False),
        ({"norm": "rmsnorm"}, False),
        ({"bias_in_mlp": False}, False),
        ({"hidden_size": 64}, False),
    ],
)
def test_finetune_is_offered_where_the_weights_fit(changes: dict[str, Any], fit: bool) -> None:
    """It is what the parameters of both models say, by name and shape."""
    spec = ModelSpec(2, 32, 4, 4, 16, 16, 64, 128)
    other = dataclasses.replace(spec, **changes)
    shapes, others = ({name: p.shape for name, p in GPTModel(each).named_parameters()} for each in (spec, other))
    assert (shapes == others) is fit
    with pytest.raises(CheckpointError) as caught:
        compare_architecture(Path("ck"), {"architecture": architecture_of(spec)}, other)
    assert ("finetune: true" in str(caught.value.hint)) is fit


def test_finetune_takes_the_weights_and_says_so(
    saved: Path, command: Any, config_of: Any, text_data: str, tmp_path: Path
) -> None:
    """With finetune the difference is a warning with the same words."""
    config_of(1, data_path=text_data, load=str(saved), train_iters=1, finetune=True, rotary_pct=1.0)
    code, out, _ = command("train", str(tmp_path / "tiny.yml"))
    assert code == 0
    assert "WARNING:" in out
    assert "rotary_pct: 0.25 -> 1.0" in out


def test_what_only_training_sees_may_change(
    saved: Path, command: Any, config_of: Any, text_data: str, tmp_path: Path
) -> None:
    """Dropout, recomputation, initialisation and the length of a sample are no part of the architecture."""
    free = {"hidden_dropout": 0.1, "checkpoint_activations": True, "init_method_std": 0.5, "seq_length": 16}
    config_of(1, data_path=text_data, load=str(saved), train_iters=3, override_lr_scheduler=True, **free)
    code, out, err = command("train", str(tmp_path / "tiny.yml"))
    assert code == 0, err
    assert "of another architecture" not in out


def test_a_checkpoint_from_before_the_entry_is_taken_with_one_line(
    saved: Path, command: Any, config_of: Any, text_data: str, tmp_path: Path
) -> None:
    """Without the entry only shapes can be compared, which the log says once."""
    path = saved / "global_step2" / "manifest.json"
    before = path.read_text()
    manifest = json.loads(before)
    del manifest["training"]["architecture"], manifest["crc32"]
    path.write_text(json.dumps(manifest))
    try:
        config_of(1, data_path=text_data, load=str(saved), train_iters=3, override_lr_scheduler=True)
        code, out, _ = command("train", str(tmp_path / "tiny.yml"))
    finally:
        path.write_text(before)
    assert code == 0
    assert out.count("does not record its architecture") == 1
