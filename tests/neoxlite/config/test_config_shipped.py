"""The files that come with neoxlite: the sizes are GPT-NeoX's, the runs are the ones they are named after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neoxlite.config import key_table, load_config
from neoxlite.config.keys import Support
from neoxlite.config.reader import shipped_folder
from tests.neoxlite.config.samples import golden

_UPSTREAM = {**golden("config/resolved.json")["shipped_values"], **golden("config/shipped_models.json")}
_SIZES = ["19M", "49M", "125M", "350M", "760M", "800M", "1-3B", "2-7B", "6-7B", "13B", "20B", "175B"]
_PYTHIA = [f"pythia/{size}" for size in ("14M", "31M", "70M", "160M", "410M", "1B", "1-4B", "2-8B", "6-9B", "12B")]
_LLAMA = [f"llama/{size}" for size in ("7B", "13B", "30B", "65B")]
_LLAMA += [f"llama2/{size}" for size in ("7B", "13B", "70B", "codellama_7B", "codellama_34B")] + ["mistral/7B"]

# What the files say otherwise than GPT-NeoX's: bfloat16 in place of fp16, no data, folders or tokenizer, pipeline size
# 0 (none) for 1 and "flash" for the default attention, which are the same.
_OTHER = {"fp16", "bf16", "data_types", "data_path", "vocab_file", "save", "load", "tensorboard_dir", "split"}
_OTHER |= {"tokenizer_type", "pipe_parallel_size", "data_impl", "attention_config", "precision"}
_OTHER |= {f"{part}_data_paths" for part in ("train", "valid", "test")}
_OTHER |= {"wall_clock_breakdown", "use_wandb", "wandb_project", "wandb_host", "wandb_team", "wandb_group"}
# And where GPT-NeoX's file is not the model it is named after.
_STAGE_0 = {"zero_optimization": "stage 0 would be raised to 1 in bfloat16"}
_LLAMA_2 = {"use_bias_in_mlp": "Llama 2 has no biases"}
_CODE_LLAMA = {"use_bias_in_mlp": "Code Llama has no biases", "intermediate_size": "the default is not its width"}
_EIGHT_GPUS = {"model_parallel_size": "one copy of the model needs 8 GPUs"}
_MENDED = {
    "pythia/14M": _STAGE_0,
    "pythia/31M": _STAGE_0,
    "pythia/1B": _STAGE_0,
    "llama2/7B": _LLAMA_2,
    "llama2/13B": _LLAMA_2,
    "llama2/70B": {**_LLAMA_2, **_EIGHT_GPUS, "rotary_emb_base": "Llama 2 has 10,000"},
    "llama2/codellama_7B": _CODE_LLAMA,
    "llama2/codellama_34B": {**_CODE_LLAMA, **_EIGHT_GPUS},
    "mistral/7B": {
        "use_bias_in_mlp": "Mistral has no biases",
        "intermediate_size": "a third of it is the width",
        "seq_length": "as long as the window, which has no effect then",
        "max_position_embeddings": "32,768 positions in Mistral's own configuration",
    },
}
# Keys that only say how the model is trained; GPT-NeoX's Llama files have none, and ours those of the papers.
_SHAPE = (
    "num_",
    "hidden_size",
    "seq_",
    "max_",
    "inter",
    "mlp_",
    "pos_emb",
    "rotary",
    "no_weight",
    "gpt_j",
    "norm",
    "rms_",
)
_SHAPE += ("use_bias", "activation", "make_vocab", "model_parallel")

_COUNTS = [
    case
    for case in golden("params/params.json")["cases"]
    if case["configs"][0] in (*_SIZES, *_PYTHIA) and len(case["configs"]) == 1 and not case.get("overrides")
]
# Parameters as on the model cards of EleutherAI, Meta and Mistral AI, and in Biderman et al. 2023, with the vocabulary.
_PUBLISHED = {
    "pythia/14M": (50277, 14_067_712),
    "pythia/31M": (50277, 30_494_720),
    "pythia/70M": (50277, 70_426_624),
    "pythia/160M": (50277, 162_322_944),
    "pythia/410M": (50277, 405_334_016),
    "pythia/1B": (50277, 1_011_781_632),
    "pythia/1-4B": (50277, 1_414_647_808),
    "pythia/2-8B": (50277, 2_775_208_960),
    "pythia/6-9B": (50277, 6_857_302_016),
    "pythia/12B": (50277, 11_846_072_320),
    "20B": (50277, 20_554_567_680),
    "llama/7B": (32000, 6_738_415_616),
    "llama/13B": (32000, 13_015_864_320),
    "llama/30B": (32000, 32_528_943_616),
    "llama/65B": (32000, 65_285_660_672),
    "llama2/7B": (32000, 6_738_415_616),
    "llama2/13B": (32000, 13_015_864_320),
    "llama2/70B": (32000, 68_976_648_192),
    "llama2/codellama_7B": (32016, 6_738_546_688),
    "llama2/codellama_34B": (32000, 33_743_970_304),
    "mistral/7B": (32000, 7_241_732_096),
}
# Width of each matrix of the gated MLP in Hugging Face's configuration of the model.
_WIDTHS = {
    "llama/7B": 11008,
    "llama/13B": 13824,
    "llama/30B": 17920,
    "llama/65B": 22016,
    "llama2/7B": 11008,
    "llama2/13B": 13824,
    "llama2/70B": 28672,
    "llama2/codellama_7B": 11008,
    "llama2/codellama_34B": 22016,
    "mistral/7B": 14336,
}


def _differing(name: str) -> set[str]:
    """Return the used keys that are not as in GPT-NeoX's file of this name, beyond those meant for all files."""
    table = key_table()
    upstream = {key.replace("-", "_"): value for key, value in _UPSTREAM[name].items()}
    if "zero_optimization" in upstream:
        block = upstream["zero_optimization"]
        upstream["zero_optimization"] = {key: value for key, value in block.items() if value or key != "cpu_offload"}
    ours = load_config(name).as_dict()
    return {
        key
        for key in (set(upstream) | set(ours)) - _OTHER
        if table[key].support is Support.USED
        and ours.get(key, table[key].default) != upstream.get(key, table[key].default)
    }


@pytest.mark.parametrize("name", [*_SIZES, *_PYTHIA])
def test_sizes_have_upstreams_values(name: str) -> None:
    """Every key that neoxlite uses has GPT-NeoX's value, and the file sets no key that has no effect."""
    cfg = load_config(name)
    assert cfg.warnings == []
    assert cfg.precision == "bfloat16"
    differing = _differing(name)
    if "keep_last_n_checkpoints" not in _UPSTREAM[name]:
        differing -= {"keep_last_n_checkpoints"}
    assert differing == set(_MENDED.get(name, ()))
    assert cfg.pipe_parallel_size == {"20B": 4}.get(name, 0)


@pytest.mark.parametrize("name", _LLAMA)
def test_llama_like_sizes_have_upstreams_shape(name: str) -> None:
    """The architecture is GPT-NeoX's but for the listed mistakes of its files; the MLP has the published width."""
    cfg = load_config(name)
    assert cfg.warnings == []
    assert cfg.architecture.mlp_widths() == (2 * _WIDTHS[name], _WIDTHS[name])
    assert {key for key in _differing(name) if key.startswith(_SHAPE)} == set(_MENDED.get(name, ()))


@pytest.mark.parametrize("name", sorted(_PUBLISHED))
def test_published_parameter_counts(name: str) -> None:
    """Exactly the parameters that the model's authors state."""
    vocabulary, parameters = _PUBLISHED[name]
    cfg = load_config(name)
    assert cfg.parameter_count(cfg.padded_vocab_size(vocabulary)) == parameters


def test_first_stage_of_two() -> None:
    """The 2.7B run of two pipeline stages printed 1,387,601,920 parameters for its first stage."""
    cfg = load_config(["2-7B", "runs/2.7B-1node-dp4-pp2"], world_size=8)
    padded = cfg.padded_vocab_size(50257)
    start, end, _ = cfg.pipeline_partition(2, padded)
    assert sum(cfg.architecture.layer_parameters(padded)[start:end]) == 1_387_601_920


@pytest.mark.parametrize("case", _COUNTS, ids=lambda case: f"{case['configs'][0]}-tp{case['counted_with_tp']}")
def test_sizes_have_upstreams_parameter_counts(case: dict[str, Any]) -> None:
    """The size of the same name has exactly the parameters of GPT-NeoX's model on a rank; 2-7B has 2,775,208,960."""
    name = case["configs"][0]
    cfg = load_config(name)
    assert cfg.parameter_count(case["padded_vocab_size"], case["counted_with_tp"]) == case["parameters"]
    if name == "2-7B":
        assert case["parameters"] == 2_775_208_960


@pytest.mark.parametrize(
    ("run", "world_size", "layout", "train_batch_size", "partition"),
    [
        ("2.7B-1node-dp8", 8, (1, 8, 1), 32, [0, 37]),
        ("2.7B-2node-dp16", 16, (1, 16, 1), 64, [0, 37]),
        ("2.7B-1node-dp4-pp2", 8, (2, 4, 1), 16, [0, 18, 37]),
    ],
)
def test_runs(
    run: str, world_size: int, layout: tuple[int, int, int], train_batch_size: int, partition: list[int]
) -> None:
    """The three 2.7B runs: layout, global batch and stages; together with a file of paths they load without a word."""
    cfg = load_config(["2-7B", f"runs/{run}", "local_setup"], world_size=world_size)
    assert (max(1, cfg.pipe_parallel_size), cfg.data_parallel_size, cfg.model_parallel_size) == layout
    assert (cfg.train_batch_size, cfg.train_micro_batch_size_per_gpu) == (train_batch_size, 4)
    assert cfg.pipeline_partition(layout[0]) == partition
    assert cfg.warnings == []


def test_blog_run_costs_34_6_tflops() -> None:
    """dp4 x pp2 at 2.7924 s an iteration is the golden 34.6 TFLOPS per GPU of GPT-NeoX's formula."""
    (case,) = (case for case in golden("params/flops.json")["cases"] if case["name"] == "blog_2.7B_dp4_pp2_gas1")
    cfg = load_config(["2-7B", "runs/2.7B-1node-dp4-pp2"], world_size=8)
    per_gpu = cfg.flops_per_iteration(cfg.padded_vocab_size(50257)) / 8 / case["iteration_time_s"]
    assert per_gpu == pytest.approx(case["actual_flops_per_gpu"], rel=1e-12)


def _shipped() -> list[Path]:
    return sorted(path.relative_to(shipped_folder()) for path in shipped_folder().rglob("*.yml"))


@pytest.mark.parametrize("path", _shipped(), ids=str)
def test_every_shipped_file_loads(path: Path) -> None:
    """Each file alone, or over a model: no warning, nothing unsupported, each key in use."""
    overlays = {"local_setup.yml"}
    model = ["2-7B"] if path.name in overlays or path.parts[0] == "runs" else []
    world_size = {"2.7B-1node-dp8.yml": 8, "2.7B-2node-dp16.yml": 16, "2.7B-1node-dp4-pp2.yml": 8}.get(path.name)
    cfg = load_config([*model, path], world_size=world_size)
    assert cfg.warnings == []
    assert cfg.unsupported == []


def test_quickstart_is_small() -> None:
    """The quick start has the size its first lines state: 0.92 M parameters with a vocabulary of 1,024."""
    cfg = load_config("quickstart")
    assert cfg.parameter_count(cfg.padded_vocab_size(1024)) == pytest.approx(0.92e6, rel=0.01)
