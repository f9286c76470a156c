"""Parameters, FLOPs and pipeline stages equal what GPT-NeoX and DeepSpeed compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from neoxlite.config import ConfigError, NeoxConfig, load_config
from tests.neoxlite.config.samples import Load, golden

_SHIPPED = golden("config/resolved.json")["shipped_values"]
_PARAMS = golden("params/params.json")["cases"]
_FLOPS = golden("params/flops.json")["cases"]
_PARTITIONS = golden("params/pipeline_partition.json")["cases"]


def _load(folder: Path, name: str, world_size: int | None = None, **changes: Any) -> NeoxConfig:
    """Load one of GPT-NeoX's files; model files without training settings get one iteration and a micro-batch of 1."""
    values = {key.replace("-", "_"): value for key, value in _SHIPPED[name].items()}
    values = {"train_iters": 1, "train_micro_batch_size_per_gpu": 1, **values, **changes}
    path = folder / "model.yml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return load_config(path, world_size=world_size, allow_unsupported=True)


def _params_name(case: dict[str, Any]) -> str:
    changes = ",".join(f"{key}={value}" for key, value in case.get("overrides", {}).items())
    return f"{case['configs'][0]}-tp{case['counted_with_tp']}-{changes}"


@pytest.mark.parametrize("case", [case for case in _PARAMS if case["configs"] != ["gmlp_small"]], ids=_params_name)
def test_parameter_counts(case: dict[str, Any], tmp_path: Path) -> None:
    """33 of 34 counts of upstream's model on the meta device, exactly; the padded vocabulary too."""
    layout = {"pipe_parallel_size": 1, "model_parallel_size": case["config_model_parallel_size"]}
    cfg = _load(tmp_path, case["configs"][0], **layout, **case.get("overrides", {}))
    expected = case["parameters"]
    if cfg.gpt_j_tied:  # upstream keeps a second LayerNorm (weight and bias) in each block that nothing uses
        expected -= cfg.num_layers * 2 * cfg.hidden_size
    padded = cfg.padded_vocab_size(case["vocab_size"])
    assert padded == case["padded_vocab_size"]
    assert cfg.parameter_count(padded, case["counted_with_tp"]) == expected


def test_gmlp_is_not_counted(load: Load) -> None:
    """The 34th case, gMLP, has blocks that neoxlite does not know: refused rather than counted wrongly."""
    cfg = load(attention_config=[[["gmlp"], "all"]], allow_unsupported=True)
    with pytest.raises(ConfigError, match="gmlp"):
        cfg.parameter_count(50304)
    with pytest.raises(ConfigError, match="gmlp"):
        cfg.flops_per_iteration(50304)


# Parameters of a rank (tensor parallel size 4) that Megatron-LM printed in the training logs of BigScience: layers,
# hidden size, pipeline stages; first, a middle, and the last stage. 32 heads, 1,024 learned positions, tied head.
_MEGATRON = [
    (40, 6144, 4, 1_217_086_464, 1_132_938_240, 1_210_807_296),
    (48, 7168, 8, 1_023_350_272, 925_177_344, 1_016_024_576),
    (64, 9216, 16, 1_145_723_904, 1_019_501_568, 1_136_305_152),
    (64, 12288, 32, 1_074_456_576, 906_160_128, 1_061_898_240),
    (64, 16384, 64, 1_029_828_608, 805_433_344, 1_013_084_160),
    (64, 8192, 16, 917_757_952, 805_560_320, 909_385_728),
]


@pytest.mark.parametrize(("layers", "hidden", "stages", "first", "middle", "last"), _MEGATRON)
def test_stages_of_megatron(
    layers: int, hidden: int, stages: int, first: int, middle: int, last: int, load: Load
) -> None:
    """The counts of each kind of stage, exactly; Megatron's last stage has no copy of the positions."""
    cfg = load(
        num_layers=layers, hidden_size=hidden, num_attention_heads=32, seq_length=1024, max_position_embeddings=1024
    )
    counts = cfg.architecture.layer_parameters(50688, tensor=4)
    embedding, _, *blocks, _, norm, head = counts
    stage = layers // stages
    assert embedding + sum(blocks[:stage]) == first
    assert sum(blocks[stage : 2 * stage]) == middle
    assert sum(blocks[-stage:]) + norm + head - 1024 * hidden == last


@pytest.mark.parametrize("case", _FLOPS, ids=lambda case: case["name"])
def test_flops(case: dict[str, Any], tmp_path: Path) -> None:
    """FLOPs per GPU and second of 11 runs, among them the 2.7B run whose line reads 34.6 TFLOPS: to 1e-12."""
    cfg = _load(
        tmp_path,
        case["config"],
        world_size=case["world_size"],
        pipe_parallel_size=case["pp"],
        model_parallel_size=case["mp"],
        train_batch_size=case["train_batch_size"],
        train_micro_batch_size_per_gpu=case["micro_batch"],
        gradient_accumulation_steps=case["gas"],
        seq_length=case["seq_length"],
        max_position_embeddings=case["seq_length"],
        checkpoint_activations=case["checkpoint_activations"],
    )
    per_gpu = cfg.flops_per_iteration(case["padded_vocab_size"]) / case["iteration_time_s"] / case["world_size"]
    assert per_gpu == pytest.approx(case["actual_flops_per_gpu"], rel=1e-12)


@pytest.mark.parametrize(
    "method", sorted({case["pipe_partition_method"] for case in _PARTITIONS}), ids=lambda method: method.split(":")[0]
)
def test_pipeline_partition(method: str, load: Load) -> None:
    """All 120 cuts of DeeperSpeed. Positions are learned there (the default), which a tied head counts again."""
    cases = [case for case in _PARTITIONS if case["pipe_partition_method"] == method]
    for case in cases:
        cfg = load(
            num_layers=case["num_layers"],
            hidden_size=case["hidden_size"],
            no_weight_tying=not case["tied_embeddings"],
            pipe_partition_method=method,
        )
        assert cfg.pipeline_partition(case["pipe_parallel_size"], case["vocab"]) == case["parts"], case


def test_all_partition_cases_are_there() -> None:
    """The golden file holds 120 cuts; none is left out by grouping them."""
    assert len(_PARTITIONS) == 120


def test_partition_of_more_stages_than_layers_ends_in_empty_stages(load: Load) -> None:
    """DeepSpeed's rule for more stages than layers: one layer each, then nothing."""
    cfg = load(num_layers=1)
    assert cfg.pipeline_partition(8) == [0, 1, 2, 3, 4, 5, 6, 6, 6]


@pytest.mark.parametrize("method", ["profile", "type:(", ""])
def test_unknown_partition_method(method: str, load: Load) -> None:
    """A method DeepSpeed does not have, or a regular expression that is none, is refused by its key."""
    cfg = load(pipe_partition_method=method)
    with pytest.raises(ConfigError, match="pipe_partition_method"):
        cfg.pipeline_partition(2)


def test_parameters_method_needs_the_vocabulary(load: Load) -> None:
    """Without the vocabulary the weights of embedding and head are unknown: a mistake of the caller, not the user."""
    with pytest.raises(ValueError, match="vocabulary"):
        load(pipe_partition_method="parameters").pipeline_partition(2)


def test_padded_vocab_size_given(load: Load) -> None:
    """A padded_vocab_size in the file is used as it is, and refused if the tokenizer is larger."""
    cfg = load(padded_vocab_size=1000)
    assert cfg.padded_vocab_size(900) == 1000
    with pytest.raises(ConfigError, match=r"small\.yml:15: padded_vocab_size 1000 is less than the tokenizer's 1001"):
        cfg.padded_vocab_size(1001)
