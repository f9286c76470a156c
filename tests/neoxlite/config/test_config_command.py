"""``neoxlite config``: what a user sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neoxlite.cli import main
from tests.neoxlite.config.samples import minimal_text


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["config", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The 2.7B run of 4 copies in 2 stages: every line a person checks before submitting, in one aligned column."""
    code, out, err = _run(capsys, "2-7B", "runs/2.7B-1node-dp4-pp2", "--world-size", "8")
    assert (code, err) == (0, "")
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert lines["layout"] == "8 GPUs = pipeline 2 x data 4 x tensor 1"
    assert lines["stages"] == "layers 0-17, 18-36 of 37"
    assert lines["batch"] == "train_batch_size 16 = micro-batch 4 x accumulation 1 x data parallel 4"
    assert lines["tokens"] == "32,768 an iteration, 10,485,760,000 in 320,000 iterations"
    assert lines["precision"] == "bfloat16, gradients accumulated in fp32, activations recomputed"
    assert lines["ZeRO"].startswith("stage 1 (2-7B.yml:")
    assert lines["parameters"].startswith("2,775,208,960 (vocabulary 50,257 padded to 50,304; GPT-2's")
    assert {line.index(line.split(None, 1)[1]) for line in out.splitlines()} == {12}


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same for programs: numbers as numbers, each set key with its place."""
    code, out, _ = _run(
        capsys, "20B", "--world-size", "96", "--vocab-size", "50277", "--set", "optimizer.params.lr=1e-4", "--json"
    )
    assert code == 0
    summary = json.loads(out)
    assert summary["data_parallel_size"] == 12
    assert summary["train_batch_size"] == 1536
    assert (summary["padded_vocab_size"], summary["parameters"]) == (50432, 20_554_567_680)
    assert summary["pipeline_partition"] == [0, 13, 25, 36, 49]
    assert summary["keys"]["num_layers"]["value"] == 44
    assert summary["keys"]["num_layers"]["source"].startswith("20B.yml:")
    assert summary["keys"]["optimizer"]["source"] == "--set"
    assert summary["flops_per_token"] == summary["flops_per_iteration"] / summary["tokens_per_iteration"]


def test_raised_stage_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    """A raised ZeRO stage is seen where the stage stands, with the reason among the warnings."""
    _, out, _ = _run(capsys, "125M", "--set", "zero_optimization.stage=0", "--set", "wall_clock_breakdown=true")
    assert "\nZeRO        stage 1 (--set), raised from 0\n" in out
    assert "\nwarning     ZeRO stage 0 is raised to 1: in bfloat16" in out
    assert "\nwarning     without effect in neoxlite: wall_clock_breakdown\n" in out


def test_unsupported_is_shown_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration that neoxlite cannot train can be looked at; what cannot be counted says so."""
    code, out, _ = _run(capsys, "125M", "--set", 'attention_config=[[["mamba"], "all"]]', "--set", "z_loss=1.0e-4")
    assert code == 0
    assert "cannot train  --set: attention_config: mamba is not supported by neoxlite" in out
    assert "cannot train  --set: z_loss: 0.0001 is not supported by neoxlite" in out
    assert "parameters    not counted" in out
    assert "FLOPs" not in out


def test_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """``--keys`` lists each key with its place and value; Japanese stays readable."""
    (tmp_path / "小.yml").write_text(minimal_text(data_path="データ/コーパス"), encoding="utf-8")
    _, out, _ = _run(capsys, "小", "-d", str(tmp_path), "--keys", "--set", "seed=7")
    rows = [line.split(None, 2) for line in out.split("\n\n")[1].splitlines()]
    assert ["num_layers", "小.yml:1", "4"] in rows
    assert ["data_path", "小.yml:15", '"データ/コーパス"'] in rows
    assert ["seed", "--set", "7"] in rows


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["125M", "--set", "num_layrs=3"], ["neoxlite: --set: num_layrs is not a GPT-NeoX key", "num_layers"]),
        (["125M", "--world-size", "3", "--set", "pipe_parallel_size=2"], ["3 GPUs cannot be shared out", "use 2 or 4"]),
        (["2-7B", "runs/2.7B-1node-dp8", "--world-size", "4"], ["train_batch_size 32 != micro-batch 4", "steps: 2"]),
        (["nothing-like-it"], ["nothing-like-it.yml: no such configuration file", "125M.yml"]),
    ],
)
def test_mistakes_are_two_lines(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, what is wrong and what to do, no traceback."""
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert words[0] in first
    assert words[1] in second


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """The help shows commands to copy, each on its own line."""
    code, out, _ = _run(capsys, "--help")
    assert code == 0
    assert "\n    neoxlite config 2-7B --world-size 16\n" in out
