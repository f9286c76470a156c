"""The key table, and what is ignored or refused."""

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
from neoxlite.config.keys import Tier, block_table, old_key_table
from neoxlite.config.overrides import default_block
from tests.neoxlite.config.samples import Load

# Keys without a default that are never None: required, or computed.
_RESOLVED = {
    *("num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings", "train_iters"),
    *("train_batch_size", "train_micro_batch_size_per_gpu", "world_size", "global_num_gpus", "attention_config"),
    *("optimizer", "lr", "precision", "zero_stage", "zero_optimization", "data_types", "config_files", "text_gen_type"),
}


def test_table_has_all_keys_once() -> None:
    """GPT-NeoX at ea7aefd8 declares 321 arguments; every line, ours too, is well-formed and says what its key means."""
    assert len(key_table().keys() - {"kernels", "recompute_granularity"}) == 321
    assert not key_table().keys() & old_key_table().keys()
    kinds = {"int", "float", "number", "bool", "str", "dict", "list", "any", "choice"}
    assert {key.type for key in key_table().values()} == kinds
    for key in (*key_table().values(), *block_table().values()):
        assert key.description, key.name
        assert bool(key.choices) == (key.type == "choice"), key.name
        assert not key.accepts or key.support is Support.USED, key.name
        assert set(key.accepts) <= set(key.choices), key.name
        assert key.range is None or key.type in ("int", "float", "number"), key.name
        assert re.fullmatch(r"v1\.0|v2\.0|20\d\d-\d\d", key.since), key.name
        if key.range is not None and key.default is not None:
            assert key.default in key.range, key.name


def test_core_works_and_useful_says_what_to_do() -> None:
    """No core key is refused but those that ask for what the engine always or never does; a refusal names a way out."""
    everything = (*key_table().values(), *block_table().values())
    refused = [key for key in everything if key.support is Support.REFUSED]
    assert [key.name for key in refused if key.tier is Tier.CORE] == ["deepspeed", "scheduler"]
    assert all(key.instead for key in refused if key.tier is not Tier.EXOTIC)


def test_default_blocks_and_table_agree() -> None:
    """The blocks that ``--set zero_optimization.stage=2`` begins with have the defaults of the table."""
    optimizer = default_block("optimizer")
    flat = {f"zero_optimization.{name}": value for name, value in default_block("zero_optimization").items()}
    flat |= {"optimizer.type": optimizer["type"]}
    flat |= {f"optimizer.params.{name}": value for name, value in optimizer["params"].items()}
    assert {name: block_table()[name].default for name in flat} == flat


def test_fields_and_table_agree() -> None:
    """Each used key is a typed field, each field that is a key is used or derived, and the types agree."""
    hints = typing.get_type_hints(NeoxConfig)
    table = key_table()
    used = {name for name, key in table.items() if key.support is Support.USED}
    assert used - set(hints) == {"padded_vocab_size"}, "that one is a method"
    for name in set(hints) & set(table):
        assert table[name].support in (Support.USED, Support.DERIVED, Support.GENERATE), name
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
        ({"pos_emb": "rpe"}, "pos_emb: rpe"),
        ({"norm": "scalenorm"}, "norm: scalenorm"),
        ({"attention_config": [[["global", "local"], "all"]]}, "attention_config: local"),
        ({"curriculum_learning": {"enabled": True}}, "curriculum_learning: {'enabled': True}"),
        ({"scheduler": {"type": "OneCycle"}}, "scheduler: {'type': 'OneCycle'}"),
        ({"optimizer": {"type": "Lion", "params": {}}}, "optimizer.type: Lion"),
        ({"optimizer": {"type": "Adam", "params": {"amsgrad": True}}}, "optimizer.params.amsgrad"),
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
    """Switches for kernels and monitors: accepted, and named in one warning, hosts in another; defaults are not."""
    cfg = load(
        synchronize_each_layer=True,
        hostfile="hosts",
        steps_per_print=10,
        deepspeed_extra_args={"comms_logger": {"enabled": True}},
        **{"mmap-warmup": True},
    )
    assert cfg.warnings == [
        "without effect in neoxlite: synchronize_each_layer (recomputation is torch's, and the numbers are the same), "
        "mmap_warmup (pages are read when they are needed), "
        "deepspeed_extra_args.comms_logger (metrics.jsonl has the time, rates and FLOPs of an iteration)",
        "read by neoxlite launch, not by training: hostfile",
    ]


def test_keys_of_launching_have_no_warning_in_a_launched_run(load: Load) -> None:
    """There they had their part, or the ranks come from where they say; what goes into a job file has no effect."""
    keys = {"hostfile": "hosts", "launcher": "openmpi", "num_gpus": 4, "deepspeed_mpi": True, "force_multi": True}
    assert [text.partition(": ")[2] for text in load(**keys).warnings] == [
        "deepspeed_mpi, force_multi (the ranks come from the launcher that starts neoxlite)",
        "hostfile, launcher, num_gpus",
    ]
    assert load(launched=True, **keys).warnings == []
    assert load(launched=True, account="g").warnings == [
        "without effect in neoxlite: account (belongs into the job file)"
    ]


def test_derived_keys_are_named(load: Load) -> None:
    """A value for a key that follows from others is not used, which a warning says; an equal one is not named."""
    cfg: Any = load(clip_grad=3.0, batch_size=2, gradient_clipping=0.5)
    assert cfg.clip_grad == 0.5
    assert cfg.warnings == ["computed from other keys, the given value is not used: clip_grad"]


def test_keys_inside_blocks_are_named(load: Load) -> None:
    """A misspelt, an ignored and a refused key of a block: unknown with a near name, without effect, not supported."""
    block = {"stage": 1, "overlap_com": True, "load_from_fp32_weights": False, "offload_param": {"device": "cpu"}}
    cfg = load(zero_optimization=block, allow_unsupported=True)
    assert cfg.warnings == [
        "without effect in neoxlite: zero_optimization.load_from_fp32_weights (checkpoints fit any layout)",
        "not known to neoxlite, without effect: zero_optimization.overlap_com (did you mean 'overlap_comm'?)",
    ]
    assert [text.partition(": ")[2] for text in cfg.unsupported] == [
        "zero_optimization.offload_param: {'device': 'cpu'} is not supported by neoxlite: remove offload_param: stage "
        "3 shards parameters over the GPUs, offload_optimizer has the optimizer states on the host"
    ]


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"z_loss": 1e-4}, "set z_loss: 0"),
        ({"norm": "scalenorm"}, "use layernorm or rmsnorm"),
        ({"moe_num_experts": 8}, "remove moe_num_experts, or train with a program that has it"),
    ],
)
def test_a_refusal_says_what_to_do(changes: dict[str, Any], hint: str, load: Load) -> None:
    """The second line of the message is about the key, not about configurations in general."""
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert (caught.value.hint or "").startswith(hint)


def test_exotic_keys_are_called_so(load: Load) -> None:
    """A user should know that a key is far from what most people train with."""
    with pytest.raises(ConfigError, match=r"moe_num_experts: 8 \(an exotic key\) is not supported by neoxlite"):
        load(moe_num_experts=8)


def test_text_generation_keys_reach_the_program(load: Load) -> None:
    """Settings of generation are typed fields with GPT-NeoX's defaults, checked, and no reason for a warning."""
    cfg = load(temperature=1, top_k=5, maximum_tokens=102, text_gen_type="Interactive")
    assert (cfg.temperature, cfg.top_k, cfg.top_p, cfg.maximum_tokens) == (1.0, 5, 0.0, 102)
    assert (cfg.text_gen_type, cfg.num_samples, cfg.prompt_end, cfg.recompute) == ("interactive", 1, "\n", False)
    assert cfg.warnings == []
    assert load().text_gen_type == "unconditional"
    with pytest.raises(ConfigError, match=r"top_p is 1\.5; it must be from 0 to 1"):
        load(top_p=1.5)


def test_slips_are_pointed_out(load: Load) -> None:
    """Hugging Face's width where GPT-NeoX wants three times as much, and a placeholder left in a path."""
    cfg = load(activation="swiglu", intermediate_size=172, save="/groups/<user-name>/x", checkpoint_factor=1)
    assert [text.partition(": ")[2] for text in cfg.warnings] == [
        "put your own in place of <user-name> in save",
        "intermediate_size 172 gives swiglu a width of 57: GPT-NeoX takes a third; for the width 172 write 516",
    ]
    assert load(activation="swiglu", intermediate_size=516).warnings == []
    assert load(activation="gelu", intermediate_size=172).warnings == []


def test_differences_from_gpt_neox_are_notes(load: Load) -> None:
    """What is done otherwise on purpose is said where it matters, and only there."""
    assert load(gradient_clipping=0.5).notes == []
    notes = load(
        pipe_parallel_size=1,
        gradient_accumulation_steps=4,
        gpt_j_residual=True,
        gpt_j_tied=True,
        use_bias_in_mlp=False,
    ).notes
    assert [note.split()[0] for note in notes] == ["gradient_clipping", "the", "attention", "a"]


def test_rate_of_zero(load: Load) -> None:
    """A file for evaluation alone has lr 0, which GPT-NeoX accepts."""
    assert load(optimizer={"type": "Adam", "params": {"lr": 0.0}}).lr == 0.0


def test_mamba_is_named_before_its_heads(load: Load) -> None:
    """The 1.4B model of GPT-NeoX's configs/mamba has 24 heads for 2048 channels, which is no mistake there."""
    sizes = {"num_attention_heads": 24, "hidden_size": 2048, "attention_config": [[["mamba"], 4]]}
    with pytest.raises(ConfigError, match="attention_config: mamba is not supported"):
        load(**sizes)


def test_words_for_a_shell(load: Load) -> None:
    """A variable or ~ in a path is taken as it is, as GPT-NeoX takes it; it is named once, and $ elsewhere is none."""
    lists = {f"{part}_data_paths": ["$SCRATCH/コーパス", "${DATA}/b"] for part in ("train", "valid", "test")}
    cfg = load(**lists, save="~/checkpoints", checkpoint_factor=1, prompt_end="$5/x", log_dir="a~/b")
    assert cfg.save == "~/checkpoints"
    told = [text.partition(": ")[2] for text in cfg.warnings if "stays as it is" in text]
    three = "in train_data_paths, valid_data_paths, test_data_paths"
    assert [text.partition(" stays")[0] for text in told] == [f"$SCRATCH {three}", f"${{DATA}} {three}", "~ in save"]
