"""Values: types, ranges, choices, and the rules between keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neoxlite.config import ConfigError, load_config
from tests.neoxlite.config.samples import Load, minimal_text

_ADAM = {"lr": 0.001, "betas": [0.9, 0.95]}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num_layers", "4", "num_layers must be a whole number, not a text ('4')"),
        ("num_layers", 4.0, "num_layers must be a whole number, not a number (4.0)"),
        ("num_layers", True, "num_layers must be a whole number, not true/false (true)"),
        ("num_layers", [4], "num_layers must be a whole number, not a list ([4])"),
        ("weight_decay", "much", "weight_decay must be a number, not a text ('much')"),
        ("weight_decay", False, "weight_decay must be a number, not true/false (false)"),
        ("weight_decay", float("nan"), "weight_decay must be a number, not nan"),
        ("weight_decay", float("inf"), "weight_decay must be a number, not inf"),
        ("num_layers", 10**30, "num_layers must be a whole number, not a number beyond all use"),
        ("no_weight_tying", "true", "no_weight_tying must be true or false, not a text ('true')"),
        ("no_weight_tying", 1, "no_weight_tying must be true or false, not a whole number (1)"),
        ("data_path", 7, "data_path must be a text, not a whole number (7)"),
        ("optimizer", [], "optimizer must be a mapping (key: value pairs), not a list ([])"),
        ("optimizer", "Adam", "optimizer must be a mapping (key: value pairs), not a text ('Adam')"),
        ("extra_save_iters", 100, "extra_save_iters must be a list, not a whole number (100)"),
        ("train_data_paths", "a", "train_data_paths must be a list, not a text ('a')"),
        ("pos_emb", "rotarry", "pos_emb: 'rotarry' is not one of its values"),
        ("pos_emb", 3, "pos_emb: 3 is not one of its values"),
        ("precision", "bf16", "precision: 'bf16' is not one of its values"),
    ],
)
def test_wrong_type(key: str, value: Any, words: str, load: Load) -> None:
    """Another type than declared: file, line, key, what it must be and what it is; and what to write."""
    with pytest.raises(ConfigError) as caught:
        load(**{key: value})
    assert words in caught.value.message
    assert "small.yml:" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("num_layers", "4", "write num_layers: 4 (without quotes)"),
        ("num_layers", 4.0, "write num_layers: 4"),
        ("min_lr", "1.0e_5", "write min_lr: 1.0e-5"),
        ("no_weight_tying", "True", "write no_weight_tying: true (without quotes)"),
        ("no_weight_tying", 0, "write no_weight_tying: false (without quotes)"),
        ("extra_save_iters", 100, "write extra_save_iters: [100]"),
        ("data_path", 7, 'put the value in quotes: data_path: "7"'),
        ("data_path", ["a/b"], "write data_path: a/b"),
        ("lr_decay_iters", "None", "write lr_decay_iters: null"),
        ("attention_config", "flash", 'write attention_config: [[["flash"], "all"]]'),
        ("attention_config", [[["flash"], "4"]], "write it without quotes: 4"),
        ("data_path", ["a", "b"], "data_path: one dataset prefix, divided by split"),
        ("split", [969, 30, 1], 'write split: "969, 30, 1"'),
        ("pos_emb", "rotarry", "use one of: learned, rotary, sinusoidal, rpe, alibi, none"),
    ],
)
def test_wrong_type_says_what_to_write(key: str, value: Any, hint: str, load: Load) -> None:
    """The second line of the message can be copied into the file."""
    with pytest.raises(ConfigError) as caught:
        load(**{key: value})
    assert caught.value.hint == hint


def test_numbers_yaml_reads_as_texts(load: Load) -> None:
    """1e-5 without a dot is a text in YAML 1.1; it is the number, also inside blocks and lists, for declared floats."""
    cfg = load(
        min_lr="1e-5",
        weight_decay="1E-1",
        optimizer={"type": "Adam", "params": {"lr": "6e-4", "eps": "1e-8", "betas": [0.9, "95e-2"]}},
        zero_optimization={"stage": 1, "reduce_bucket_size": "5e8"},
    )
    assert (cfg.min_lr, cfg.weight_decay, cfg.lr) == (1e-5, 0.1, 6e-4)
    assert cfg.optimizer["params"] == {"lr": 6e-4, "eps": 1e-8, "betas": [0.9, 0.95]}
    assert cfg.zero_optimization["reduce_bucket_size"] == 500_000_000
    assert isinstance(cfg.zero_optimization["reduce_bucket_size"], int)


def test_weights_are_numbers(load: Load) -> None:
    """Weights are floats whatever their spelling; a path that looks like a number stays a text."""
    paths = {"train_data_paths": ["a", "1e5"], "valid_data_paths": ["c"], "test_data_paths": ["d"]}
    cfg = load(train_data_weights=[1, "5e-1"], **paths)
    assert cfg.train_data_weights == [1.0, 0.5]
    assert cfg.valid_data_weights == [1.0]
    assert cfg.train_data_paths == ["a", "1e5"]


def test_whole_numbers_are_floats_where_declared(load: Load) -> None:
    """``hidden_dropout: 0`` is the float 0.0, as the shipped files write it."""
    cfg = load(hidden_dropout=0, rotary_pct=1)
    assert isinstance(cfg.hidden_dropout, float)
    assert isinstance(cfg.rotary_pct, float)


def test_choices_ignore_case(load: Load) -> None:
    """As in GPT-NeoX; the value becomes the declared spelling."""
    assert load(pos_emb="Rotary", tokenizer_type="hftokenizer").tokenizer_type == "HFTokenizer"


def test_none_of_python_is_null_for_names(load: Load) -> None:
    """``hostfile: None``, a text in YAML, is written where nothing is meant; a default that is no null stays a text."""
    cfg = load(hostfile="None", load="None", pos_emb="None", prompt_end="None")
    assert (cfg.value("hostfile"), cfg.load, cfg.pos_emb, cfg.prompt_end) == (None, None, "none", "None")
    told = [text.partition(": ")[2] for text in cfg.warnings if "write null" in text]
    assert told == [
        f"{key}: None is a text in YAML, and taken as null here: write null" for key in ("hostfile", "load")
    ]


def test_null_is_the_default(load: Load) -> None:
    """Null is accepted everywhere and means "not given"; for gradient_accumulation_steps it means "derive it"."""
    cfg = load(weight_decay=None, train_batch_size=16, gradient_accumulation_steps=None, world_size=2)
    assert cfg.weight_decay == 0.1
    assert cfg.gradient_accumulation_steps == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_layers": 0}, "num_layers is 0; it must be from 1 to 10,000"),
        ({"num_layers": 10**12}, "num_layers is 1000000000000; it must be from 1 to 10,000"),
        ({"hidden_size": 10**12 + 39}, "hidden_size is 1000000000039; it must be from 1 to 1,000,000"),
        ({"num_attention_heads": 10**12}, "num_attention_heads is 1000000000000; it must be from 1 to 100,000"),
        ({"global_num_gpus": 10**12}, "global_num_gpus is 1000000000000; it must be from 1 to 1,000,000"),
        ({"hidden_size": 10**30}, "hidden_size must be a whole number"),
        ({"attention_config": [[["global"], 10**12]]}, "attention_config repeats 1 kinds 1000000000000 times"),
        ({"save": "x", "checkpoint_factor": 2.5}, "checkpoint_factor is 2.5; with checkpoint_scale linear"),
        ({"optimizer": {}}, "optimizer needs a type and a params block"),
        ({"train_iters": -1}, "train_iters is -1; it must be at least 1"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0; it must be at least 1"),
        ({"hidden_dropout": 1.0}, "hidden_dropout is 1.0; it must be at least 0 and less than 1"),
        ({"attention_dropout": -0.1}, "attention_dropout is -0.1; it must be at least 0 and less than 1"),
        ({"warmup": 1.5}, "warmup is 1.5; it must be from 0 to 1"),
        ({"gradient_clipping": -1.0}, "gradient_clipping is -1.0; it must be at least 0"),
        ({"seed": 0}, "seed is 0; it must be at least 1"),
        ({"layernorm_epsilon": 0}, "layernorm_epsilon is 0; it must be greater than 0"),
        ({"keep_last_n_checkpoints": 0}, "keep_last_n_checkpoints is 0; it must be at least 1"),
        ({"hidden_size": 65}, "hidden_size 65 is not a multiple of num_attention_heads 4"),
        ({"seq_length": 129}, "seq_length 129 is more than max_position_embeddings 128"),
        (
            {"pos_emb": "sinusoidal", "hidden_size": 25, "num_attention_heads": 5},
            "pos_emb sinusoidal: hidden_size 25 cannot be halved into sines and cosines",
        ),
        ({"pos_emb": "rotary", "rotary_pct": 0.2}, "rotary_pct 0.2 of a head dimension of 16 is 3 channels"),
        ({"pos_emb": "rotary", "rotary_pct": 0.0}, "rotary_pct 0 of a head dimension of 16 is 0 channels"),
        (
            {"model_parallel_size": 3, "world_size": 3},
            "num_attention_heads 4 cannot be shared by model_parallel_size 3",
        ),
        ({"num_kv_heads": 3}, "num_kv_heads 3 must divide num_attention_heads 4"),
        ({"num_layers": ...}, "num_layers is not given"),
        ({"train_iters": ...}, "train_iters is not given"),
        ({"min_lr": 0.1}, "min_lr 0.1 is more than the learning rate 0.001"),
        ({"save": "x"}, "save is given, but neither checkpoint_factor nor extra_save_iters"),
        ({"extra_save_iters": [1, "2"]}, "extra_save_iters holds '2'"),
        ({"fp16_lm_cross_entropy": True}, "fp16_lm_cross_entropy needs fp16"),
        ({"train_data_paths": ["a"]}, "train_data_paths is given without valid_data_paths, test_data_paths"),
        ({"attention_config": ["global"] * 3}, "attention_config gives 3 layers, num_layers is 4"),
        ({"attention_config": [[["a", "b", "c"], "all"]]}, "3 kinds cannot be repeated over 4 layers"),
        ({"attention_config": [[["global"], 2.5]]}, "is not of the form [[kinds], count]"),
        ({"attention_config": [[[], 4]]}, "is not of the form [[kinds], count]"),
        ({"attention_config": [{"global": 4}]}, "is not of the form [[kinds], count]"),
        ({"data_types": {"grad_accum_dtype": "fp8"}}, "data_types.grad_accum_dtype: 'fp8' is not one of its values"),
        ({"bf16": {"enabled": "yes"}}, "bf16.enabled must be true or false, not a text ('yes')"),
        ({"bf16": {}}, "bf16: the block has no enabled: true or false"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, "fp16 and bf16 are both enabled"),
        ({"bf16": {"enabled": True}, "precision": "fp16"}, "precision is fp16, but the bf16 block is enabled"),
        ({"zero_optimization": {"stage": True}}, "zero_optimization.stage must be a whole number, not true/false"),
        ({"optimizer": {"type": "Adam"}}, "optimizer needs a type and a params block"),
        ({"optimizer": {"type": "Adm", "params": {}}}, "optimizer.type: 'Adm' is not one of its values"),
        (
            {"optimizer": {"type": "Adam", "params": {"lr": "fast"}}},
            "params.lr must be a number, not a text ('fast')",
        ),
        (
            {"optimizer": {"type": "Adam", "params": {"eps": "1.0e_8"}}},
            "params.eps must be a number, not a text",
        ),
        ({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}}, "optimizer.params.betas is [0.9]"),
        (
            {"optimizer": {"type": "Adam", "params": {"betas": 0.9}}},
            "params.betas must be a list, not a number (0.9)",
        ),
        ({"optimizer": {"type": "Adam", "params": {"lr": None}}}, "optimizer.params.lr is null"),
        ({"zero_optimization": {"stage": 5}}, "zero_optimization.stage is 5; it must be from 0 to 3"),
        ({"optimizer": {"type": "Adam", "params": {"weight_decay": 0.1}}}, "optimizer.params.weight_decay is given"),
    ],
)
def test_wrong_value(changes: dict[str, Any], words: str, load: Load) -> None:
    """A value out of range or at odds with another: what is wrong with the numbers, and what to do."""
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"hidden_size": 66}, "nearest: 3 or 6 heads"),
        ({"pos_emb": "rotary", "rotary_pct": 0.2}, "nearest: rotary_pct 0.125 or 0.25"),
        ({"pos_emb": "rotary", "rotary_pct": 0.05}, "nearest: rotary_pct 0.125"),
        ({"pos_emb": "rotary", "hidden_size": 384, "rotary_pct": 0.35}, "nearest: rotary_pct 0.3334 or 0.3542"),
        ({"pos_emb": "rotary", "hidden_size": 4}, "nearest: rotary_pct none: a head of 1 channels has no pair"),
        ({"num_kv_heads": 3}, "nearest: num_kv_heads 2 or 4"),
        (
            {"num_attention_heads": 32, "num_kv_heads": 2, "model_parallel_size": 4, "world_size": 4},
            "nearest: num_kv_heads 4",
        ),
        (
            {"num_attention_heads": 32, "num_kv_heads": 12, "model_parallel_size": 4, "world_size": 4},
            "nearest: num_kv_heads 8 or 16",
        ),
        (
            {"num_attention_heads": 8, "model_parallel_size": 3, "world_size": 3},
            "nearest: model_parallel_size 2 or 4",
        ),
    ],
)
def test_nearest_choices_are_valid(changes: dict[str, Any], hint: str, load: Load) -> None:
    """A failed equation names the nearest values that satisfy it, and those load."""
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert caught.value.hint == hint
    *_, word, value = hint.removesuffix(" heads").split(" or ")[0].split()
    if "none" in hint:
        return
    key = word if "_" in word else "num_attention_heads"
    first = {**changes, key: float(value) if "." in value else int(value)}
    if key == "model_parallel_size":
        first["world_size"] = first[key]
    assert load(**first).value(key) == first[key]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_layers": ...}, "small.yml: num_layers is not given"),
        ({"train_iters": ...}, "small.yml: train_iters is not given"),
        ({"train_micro_batch_size_per_gpu": ...}, "small.yml: neither train_batch_size nor"),
        ({"world_size": 10**7}, "small.yml: the world size is 10000000"),
    ],
)
def test_what_is_missing_is_missing_in_the_files(changes: dict[str, Any], words: str, load: Load) -> None:
    """What stands nowhere has no line: the files are named."""
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert words in caught.value.message


def test_a_mistake_inside_a_block_has_its_own_line(load: Load) -> None:
    """The line of the value itself, not of the block that it is in."""
    with pytest.raises(ConfigError, match=r"small\.yml:11: optimizer\.params\.lr must be a number"):
        load(optimizer={"type": "Adam", "params": {"lr": "fast"}})


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0], "train_data_weights has 1 weights for 2 paths"),
        ([1.0, -1.0], "train_data_weights is [1.0, -1.0]"),
        ([0.0, 0], "train_data_weights is [0.0, 0]"),
        ([1.0, "x"], "train_data_weights is [1.0, 'x']"),
    ],
)
def test_wrong_weights(weights: list[Any], words: str, load: Load) -> None:
    """One weight for each path, not negative, not all zero."""
    paths = {"train_data_paths": ["a", "b"], "valid_data_paths": ["c"], "test_data_paths": ["d"]}
    with pytest.raises(ConfigError) as caught:
        load(train_data_weights=weights, **paths)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("stage", "changes", "used", "words"),
    [
        (0, {}, 0, None),
        (0, {"precision": "fp16"}, 1, "in fp16"),
        (0, {"precision": "bfloat16"}, 1, "in bfloat16"),
        (0, {"pipe_parallel_size": 2}, 1, "with pipe_parallel_size 2"),
        (1, {"pipe_parallel_size": 2}, 1, None),
        (0, {"pipe_parallel_size": 1}, 0, None),
        (2, {"precision": "bfloat16"}, 2, None),
        (3, {"pipe_parallel_size": 1}, 3, None),
    ],
)
def test_zero_stage_is_raised_where_0_is_wrong(
    stage: int, changes: dict[str, Any], used: int, words: str | None, load: Load
) -> None:
    """Stage 0 becomes 1 outside fp32 and with pipeline stages, with a warning; the block stays as written."""
    cfg = load(zero_optimization={"stage": stage}, **changes)
    assert cfg.zero_stage == used
    assert cfg.zero_optimization == {"stage": stage}
    assert (words is None) == (cfg.zero_stage_reason is None)
    if words is not None:
        assert any("raised to 1" in warning and words in warning for warning in cfg.warnings)


@pytest.mark.parametrize("stage", [2, 3])
def test_zero_2_and_3_with_pipeline_are_refused(stage: int, load: Load) -> None:
    """DeepSpeed cannot do both; the message names both ways out."""
    with pytest.raises(ConfigError, match=f"ZeRO stage {stage} cannot be combined with pipe_parallel_size 2") as caught:
        load(zero_optimization={"stage": stage}, pipe_parallel_size=2)
    assert caught.value.hint is not None
    assert "stage: 1" in caught.value.hint
    assert "pipe_parallel_size: 1" in caught.value.hint


def test_bf16_accumulates_in_fp32_unless_told_otherwise(load: Load) -> None:
    """The default is said in a warning; a written dtype is kept without one."""
    cfg = load(bf16={"enabled": True}, zero_optimization={"stage": 1})
    assert cfg.data_types == {"grad_accum_dtype": "fp32"}
    assert any("accumulated in fp32" in warning for warning in cfg.warnings)
    cfg = load(bf16={"enabled": True}, zero_optimization={"stage": 1}, data_types={"grad_accum_dtype": "bf16"})
    assert cfg.data_types == {"grad_accum_dtype": "bf16"}
    assert cfg.warnings == []


def test_clipping_is_what_was_written(load: Load) -> None:
    """GPT-NeoX at ea7aefd8 never clips at 1.0, since defaults are not handed on; here what is written is used."""
    assert load(gradient_clipping=1.0).gradient_clipping == 1.0
    assert load(gradient_clipping=0).gradient_clipping == 0.0


def test_lr_beside_the_optimizer_block(load: Load) -> None:
    """optimizer.params.lr wins over a top-level lr, as in GPT-NeoX, and a warning says so."""
    cfg = load(lr=0.5)
    assert cfg.lr == 0.001
    assert cfg.warnings == ["computed from other keys, the given value is not used: lr"]


def test_attributes_of_other_keys_and_none(load: Load) -> None:
    """Keys that are no fields are attributes too; a name that is no key is not."""
    cfg: Any = load(wandb_project="p")
    assert cfg.wandb_project == "p"
    assert cfg.rpe_num_buckets == 32
    with pytest.raises(AttributeError):
        _ = cfg.num_layrs


def test_config_is_frozen(load: Load) -> None:
    """A resolved configuration cannot be changed by accident."""
    cfg: Any = load()
    with pytest.raises(AttributeError):
        cfg.num_layers = 5


def _small(folder: Path) -> Path:
    path = folder / "small.yml"
    path.write_text(minimal_text(), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("save", "a\0b"),
        ("data_path", "\ud800"),
        ("train_data_paths", ["a", "b\0"]),
        ("wandb_project", "\udfff"),
        ("data_types", {"grad_accum_dtype\0": "fp32"}),
    ],
)
def test_a_text_that_no_file_can_hold(key: str, value: Any, tmp_path: Path) -> None:
    """Refused by the key, before the operating system does it with an exception."""
    with pytest.raises(ConfigError, match=f"--set: {key} has a character that no file and no file name can hold"):
        load_config(_small(tmp_path), overrides={key: value})
