"""Keys of earlier GPT-NeoX releases, and what files of then meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neoxlite.config import ConfigError
from tests.neoxlite.config.samples import Load


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"save_interval": 50}, {"checkpoint_factor": 50}),
        ({"save-interval": 50}, {"checkpoint_factor": 50}),
        ({"save_iters": [1, 2]}, {"extra_save_iters": [1, 2]}),
        ({"save_iters": 5000}, {"extra_save_iters": [5000]}),
        # GPT-NeoX v1.0 to November 2023, run: the key is overwritten, and such files train with 1 and with 4.
        ({"gas": 64}, {"gradient_accumulation_steps": 1, "train_batch_size": 2}),
        ({"gas": 64, "gradient_accumulation_steps": 4}, {"gradient_accumulation_steps": 4, "train_batch_size": 8}),
        (
            {"train_data_path": "a", "valid_data_path": "b", "test_data_path": "c"},
            {"train_data_paths": ["a"], "valid_data_paths": ["b"], "test_data_paths": ["c"]},
        ),
        ({"geglu": True}, {"activation": "geglu"}),
        ({"openai_gelu": True}, {"bias_gelu_fusion": True, "activation": "gelu"}),
        ({"geglu": False}, {"activation": "gelu"}),
        (
            {"mlp_type": "llama", "activation": "silu", "intermediate_size": 11008},
            {"activation": "swiglu", "intermediate_size": 33024, "use_bias_in_mlp": False},
        ),
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
        if key not in ("optimizer", "intermediate_size", "activation", "gradient_accumulation_steps"):
            assert any("small.yml:" in text and key.replace("-", "_") in text for text in cfg.warnings)


def test_llama_width_of_the_old_meaning(load: Load) -> None:
    """mlp_type llama with Hugging Face's 11008 gives matrices of that width, as the release of that time made them."""
    cfg = load(mlp_type="llama", activation="silu", intermediate_size=11008)
    assert cfg.architecture.mlp_widths() == (2 * 11008, 11008)


def test_old_files_are_told_of_changed_defaults(load: Load) -> None:
    """Dropout, weight decay and clipping had other defaults in v1.0; those that a file leaves out are named."""
    cfg = load(save_interval=5, hidden_dropout=0.0, weight_decay=0.01)
    assert cfg.warnings[-1].endswith("these defaults were others then: gradient_clipping 0.0, attention_dropout 0.1")
    told = load(save_interval=5, weight_by_num_documents=True).warnings
    assert any(text.endswith("weight_decay 0.01, weighted_sampler_alpha 0.3") for text in told)


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
        ({"save_interval": 2, "checkpoint_factor": 3}, "save_interval .* is the old name of checkpoint_factor"),
        ({"adam_beta1": 0.9}, r"adam_beta1 .* and optimizer\.params\.betas .* are both given"),
    ],
)
def test_old_and_new_key_together(both: dict[str, Any], words: str, load: Load) -> None:
    """Which one was meant cannot be known."""
    with pytest.raises(ConfigError, match=words):
        load(**both)


LR_ALONE = {"type": "Adam", "params": {"lr": 0.001}}


@pytest.mark.parametrize(
    ("key", "wrong", "message"),
    [
        ("slurm_comment", {"slurm_comment": 5}, "comment must be a text, not a whole number (5)"),
        ("save-interval", {"save-interval": "x"}, "checkpoint_factor must be a number, not a text ('x')"),
        ("adam_beta1", {"optimizer": LR_ALONE, "adam_beta1": "x"}, "optimizer.params.betas is ['x', 0.999]"),
        (
            "adam_beta2",
            {"optimizer": LR_ALONE, "adam_beta1": 0.8, "adam_beta2": 1},
            "optimizer.params.betas is [0.8, 1]",
        ),
        ("adam_eps", {"adam_eps": -1}, "optimizer.params.eps is -1; it must be greater than 0"),
    ],
)
def test_a_wrong_value_is_placed_where_it_was_written(
    key: str, wrong: dict[str, Any], message: str, load: Load, tmp_path: Path
) -> None:
    """The message has the old key, and its line, beside today's name."""
    with pytest.raises(ConfigError) as caught:
        load(**wrong)
    lines = (tmp_path / "small.yml").read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.startswith(f"{key}:"))
    assert caught.value.message == f"{tmp_path}/small.yml:{line} ({key}): {message}"


def test_a_null_of_adam_is_its_default(load: Load) -> None:
    """As null is for every key."""
    cfg = load(optimizer=LR_ALONE, adam_beta1=None, adam_eps=1e-6)
    assert cfg.optimizer["params"] == {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-6}


def test_wrong_betas_are_placed_at_their_own_line(load: Load, tmp_path: Path) -> None:
    """Not at the block's."""
    with pytest.raises(ConfigError) as caught:
        load(optimizer={"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 2]}})
    lines = (tmp_path / "small.yml").read_text(encoding="utf-8").splitlines()
    line = lines.index("    betas:") + 1
    assert caught.value.message == f"{tmp_path}/small.yml:{line}: optimizer.params.betas is [0.9, 2]"


def test_gas_says_what_to_write(load: Load) -> None:
    """Who means it is told the key that has an effect."""
    (told,) = (text for text in load(gas=64).warnings if "gas" in text)
    assert told.endswith("without effect, as it was there; write gradient_accumulation_steps if you mean it")


def test_bfloat16_in_the_fp16_block(load: Load) -> None:
    """Run: GPT-NeoX resolves it as bfloat16 in v1.0 and June 2022, when save_interval was a key, and as fp16 today."""
    block = {"enabled": True, "type": "bfloat16", "loss_scale": 0}
    today = load(fp16=block)
    assert today.precision == "fp16"
    assert any("fp16.type (the precision is fp16" in text for text in today.warnings)
    then = load(fp16=block, save_interval=10)
    assert (then.precision, then.data_types) == ("bfloat16", {"grad_accum_dtype": "fp32"})
    assert any("small.yml:15: fp16 with type: bfloat16" in text for text in then.warnings)
    assert load(fp16=block, gas=1).precision == "fp16"  # a key until February 2024
    assert load(fp16={**block, "enabled": False}, save_interval=10).precision == "fp32"


def test_norm_limit_among_the_optimizers_parameters(load: Load) -> None:
    """Files of 2021 have DeepSpeed's max_grad_norm there, which GPT-NeoX never read: gradient_clipping clips."""
    params = {"lr": 0.001, "betas": [0.9, 0.999], "max_grad_norm": 1.0}
    cfg = load(optimizer={"type": "Adam", "params": params}, gradient_clipping=0.5)
    assert cfg.gradient_clipping == 0.5
    assert any("optimizer.params.max_grad_norm (gradient_clipping is what clips" in text for text in cfg.warnings)
