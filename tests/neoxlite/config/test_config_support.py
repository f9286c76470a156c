"""The key table, what is ignored or refused, and the keys of earlier releases."""

from __future__ import annotations

import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import neoxlite
from neoxlite.config import ConfigError, NeoxConfig, Support, key_table
from tests.neoxlite.config.samples import Load

# Keys without a default that are never None: required, or computed.
_RESOLVED = {
    *("num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings", "train_iters"),
    *("train_batch_size", "train_micro_batch_size_per_gpu", "world_size", "global_num_gpus", "attention_config"),
    *("optimizer", "lr", "precision", "zero_stage", "zero_optimization", "data_types", "config_files"),
}


def test_table_has_all_keys_once() -> None:
    """GPT-NeoX at ea7aefd8 declares 321 arguments; every line of the table is well-formed."""
    table = key_table()
    assert len(table) == 321
    kinds = {"int", "float", "number", "bool", "str", "dict", "list", "any", "choice"}
    assert {key.type for key in table.values()} == kinds
    for key in table.values():
        assert bool(key.choices) == (key.type == "choice"), key.name
        assert not key.accepts or key.support is Support.USED, key.name
        assert set(key.accepts) <= set(key.choices), key.name
        assert key.support is not Support.USED or key.description, key.name


def test_fields_and_table_agree() -> None:
    """Each used key is a typed field, each field that is a key is used or derived, and the types agree."""
    hints = typing.get_type_hints(NeoxConfig)
    table = key_table()
    used = {name for name, key in table.items() if key.support is Support.USED}
    assert used - set(hints) == {"padded_vocab_size"}, "that one is a method"
    for name in set(hints) & set(table):
        assert table[name].support in (Support.USED, Support.DERIVED), name
        assert _python_types(table[name].type) <= _union(hints[name]) | {str}, name
        if table[name].default is None and name not in _RESOLVED:
            assert type(None) in _union(hints[name]), name


def test_used_keys_are_read() -> None:
    """No key is called used that no module of neoxlite reads, apart from declaring and checking it."""
    package = Path(neoxlite.__file__).parent
    declarations = {package / "config" / "neox.py", package / "config" / "checks.py"}
    code = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path not in declarations)
    words = set(re.findall(r"\w+", code))
    assert {name for name, key in key_table().items() if key.support is Support.USED} <= words


def _python_types(kind: str) -> set[type]:
    return {
        "int": {int},
        "float": {float},
        "number": {int, float},
        "bool": {bool},
        "str": {str},
        "choice": {str},
        "dict": {dict},
        "list": {list},
        "any": set(),
    }[kind]


def _union(hint: Any) -> set[type]:
    options = typing.get_args(hint) if type(hint).__name__ in ("UnionType", "Union", "_UnionGenericAlias") else (hint,)
    return {typing.get_origin(option) or option for option in options}


def test_config_imports_no_torch() -> None:
    """The configuration can be read on a login node: no torch, no DeepSpeed, no numpy."""
    code = (
        "import sys, neoxlite.config, neoxlite.cli.config; print(*{'torch', 'deepspeed', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"moe_num_experts": 8}, "moe_num_experts: 8"),
        ({"train_impl": "dpo"}, "train_impl: 'dpo'"),
        ({"z_loss": 1e-4}, "z_loss: 0.0001"),
        ({"pos_emb": "alibi"}, "pos_emb: alibi"),
        ({"norm": "scalenorm"}, "norm: scalenorm"),
        ({"attention_config": [[["global", "local"], "all"]]}, "attention_config: local"),
        ({"sliding_window_width": 64}, "sliding_window_width: 64"),
        ({"curriculum_learning": {"enabled": True}}, "curriculum_learning: {'enabled': True}"),
        ({"scheduler": {"type": "OneCycle"}}, "scheduler: {'type': 'OneCycle'}"),
        ({"tokenizer_type": "SPMTokenizer"}, "tokenizer_type: SPMTokenizer"),
        ({"optimizer": {"type": "Lion", "params": {}}}, "optimizer.type: Lion"),
        ({"optimizer": {"type": "Adam", "params": {"amsgrad": True}}}, "optimizer.params: amsgrad"),
        ({"deepspeed_extra_args": {"zero_optimization": {"stage": 3}}}, "deepspeed_extra_args: "),
        ({"deepspeed": False}, "deepspeed: false"),
    ],
)
def test_what_would_change_the_maths_is_refused(changes: dict[str, Any], words: str, load: Load) -> None:
    """Not supported is said by key, value and line; the same configuration can still be looked at."""
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert f": {words}" in caught.value.message
    assert "is not supported by neoxlite" in caught.value.message
    cfg = load(allow_unsupported=True, **changes)
    assert len(cfg.unsupported) == 1
    assert words in cfg.unsupported[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"moe_num_experts": 1},
        {"curriculum_learning": {"enabled": False}},
        {"soft_prompt_tuning": None},
        {"deepspeed_extra_args": {}},
        {"attention_config": [[["flash"], 4]]},
        {"autotuning": {}},
    ],
)
def test_refused_keys_that_ask_for_nothing(changes: dict[str, Any], load: Load) -> None:
    """A refused key at its default, or switched off, is no reason to refuse."""
    assert load(**changes).unsupported == []


def test_ignored_keys_are_named_once(load: Load) -> None:
    """Switches for kernels, launchers and monitors: accepted, and named in one warning; defaults are not named."""
    cfg = load(
        synchronize_each_layer=True,
        hostfile="hosts",
        steps_per_print=10,
        deepspeed_extra_args={"comms_logger": {"enabled": True}},
        **{"wall-clock-breakdown": True},
    )
    assert cfg.warnings == [
        "without effect in neoxlite: synchronize_each_layer, hostfile, wall_clock_breakdown, "
        "deepspeed_extra_args.comms_logger"
    ]


def test_derived_keys_are_named(load: Load) -> None:
    """A value for a key that follows from others is not used, which a warning says; an equal one is not named."""
    cfg: Any = load(clip_grad=3.0, batch_size=2, gradient_clipping=0.5)
    assert cfg.clip_grad == 0.5
    assert cfg.warnings == ["computed from other keys, the given value is not used: clip_grad"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"save_interval": 50}, {"checkpoint_factor": 50}),
        ({"save-interval": 50}, {"checkpoint_factor": 50}),
        ({"save_iters": [1, 2]}, {"extra_save_iters": [1, 2]}),
        ({"gas": 3}, {"gradient_accumulation_steps": 3, "train_batch_size": 6}),
        (
            {"train_data_path": "a", "valid_data_path": "b", "test_data_path": "c"},
            {"train_data_paths": ["a"], "valid_data_paths": ["b"], "test_data_paths": ["c"]},
        ),
        ({"geglu": True}, {"activation": "geglu"}),
        ({"openai_gelu": True}, {"bias_gelu_fusion": True, "activation": "gelu"}),
        ({"geglu": False}, {"activation": "gelu"}),
        ({"mlp_type": "llama", "intermediate_size": 11008}, {"activation": "swiglu", "intermediate_size": 33024}),
        ({"mlp_type": "regular"}, {"activation": "gelu"}),
        ({"output_layer_parallelism": "row"}, {"output_layer_parallelism": "column"}),
        (
            {"adam_beta1": 0.8, "adam_eps": 1e-6, "optimizer": {"type": "Adam", "params": {"lr": 0.001}}},
            {"optimizer": {"type": "Adam", "params": {"lr": 0.001, "eps": 1e-6, "betas": [0.8, 0.999]}}},
        ),
        ({"zero_allow_untested_optimizer": True, "genfile": "x", "detect_nvlink_pairs": True}, {}),
        ({"reset_attention_mask": False, "num_experts": 1, "sparsity": "none"}, {}),
    ],
)
def test_old_keys_are_read_with_a_warning(old: dict[str, Any], new: dict[str, Any], load: Load) -> None:
    """Keys of earlier releases mean what they meant; each is named with its place and today's name."""
    cfg = load(**old)
    assert {key: getattr(cfg, key) for key in new} == new
    for key in old:
        if key not in ("optimizer", "intermediate_size"):
            assert any("small.yml:" in text and key.replace("-", "_") in text for text in cfg.warnings)


def test_llama_width_of_the_old_meaning(load: Load) -> None:
    """mlp_type llama with Hugging Face's 11008 gives matrices of that width, as the release of that time made them."""
    cfg = load(mlp_type="llama", intermediate_size=11008)
    assert cfg.architecture.mlp_widths() == (2 * 11008, 11008)


def test_old_files_are_told_of_changed_defaults(load: Load) -> None:
    """Dropout, weight decay and clipping had other defaults in v1.0; those that a file leaves out are named."""
    cfg = load(save_interval=5, hidden_dropout=0.0, weight_decay=0.01)
    assert cfg.warnings[-1].endswith("these defaults were others then: gradient_clipping 0.0, attention_dropout 0.1")


@pytest.mark.parametrize(
    "old",
    [
        {"reset_attention_mask": True},
        {"apply_residual_connection_post_layernorm": True},
        {"onebitadam": True},
        {"num_experts": 8},
        {"sparsity": "all"},
        {"mlp_type": "mixed"},
    ],
)
def test_old_keys_with_other_maths_are_refused(old: dict[str, Any], load: Load) -> None:
    """Ignoring these would train another model."""
    with pytest.raises(ConfigError, match=next(iter(old))):
        load(**old)


@pytest.mark.parametrize(
    ("both", "words"),
    [
        ({"gas": 2, "gradient_accumulation_steps": 2}, "gas .* is the old name of gradient_accumulation_steps"),
        ({"save_interval": 2, "checkpoint_factor": 3}, "save_interval .* is the old name of checkpoint_factor"),
        ({"adam_beta1": 0.9}, r"adam_beta1 .* and optimizer\.params\.betas .* are both given"),
    ],
)
def test_old_and_new_key_together(both: dict[str, Any], words: str, load: Load) -> None:
    """Which one was meant cannot be known."""
    with pytest.raises(ConfigError, match=words):
        load(**both)
