"""The files that come with neoxlite: the sizes are GPT-NeoX's, the runs are the ones they are named after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neoxlite.config import key_table, load_config
from neoxlite.config.keys import Support
from neoxlite.config.reader import shipped_folder
from tests.neoxlite.config.samples import golden

_UPSTREAM = golden("config/resolved.json")["shipped_values"]
_SIZES = ["19M", "125M", "350M", "760M", "1-3B", "2-7B", "6-7B", "13B", "20B"]

# What the files say otherwise than GPT-NeoX's: bfloat16 in place of fp16, no data, folders or tokenizer, and pipeline
# size 0 (none) for 1, which is the same layout.
_OTHER = {"fp16", "bf16", "data_types", "data_path", "vocab_file", "save", "load", "tensorboard_dir", "split"}
_OTHER |= {"tokenizer_type", "pipe_parallel_size", "data_impl"}
_COUNTS = [
    case
    for case in golden("params/params.json")["cases"]
    if len(case["configs"]) == 1 and case["configs"][0] in _SIZES and not case.get("overrides")
]


@pytest.mark.parametrize("name", _SIZES)
def test_sizes_have_upstreams_values(name: str) -> None:
    """Every key that neoxlite uses has GPT-NeoX's value, and the file sets no key that has no effect."""
    cfg = load_config(name)
    assert cfg.warnings == []
    assert cfg.precision == "bfloat16"
    upstream = {key.replace("-", "_"): value for key, value in _UPSTREAM[name].items()}
    ours = cfg.as_dict()
    table = key_table()
    for key in (set(upstream) | set(ours)) - _OTHER:
        if table[key].support is Support.USED:
            assert ours.get(key, table[key].default) == upstream.get(key, table[key].default), key
    assert cfg.pipe_parallel_size == {"20B": 4}.get(name, 0)


@pytest.mark.parametrize("case", _COUNTS, ids=lambda case: f"{case['configs'][0]}-tp{case['counted_with_tp']}")
def test_sizes_have_upstreams_parameter_counts(case: dict[str, Any]) -> None:
    """The shipped size of the same name has exactly the parameters of GPT-NeoX's model; 2-7B has 2,775,208,960."""
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
