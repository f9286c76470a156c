"""``neoxlite config show`` and ``diff``: what a user sees."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from neoxlite.cli import main
from tests.neoxlite.config.samples import minimal_text


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["config", "show", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The 2.7B run of 4 copies in 2 stages: every line a person checks before submitting, in one aligned column."""
    code, out, err = _run(capsys, "2-7B", "runs/2.7B-1node-dp4-pp2", "--world-size", "8", "--keys", "none")
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

    less = (
        "recompute_granularity=selective",
        "zero_optimization.offload_optimizer={device: cpu}",
        "sequence_parallel=on",
    )
    options = [word for text in (*less, "model_parallel_size=2") for word in ("--set", text)]
    _, out, _ = _run(capsys, "2-7B", "--world-size", "8", "--keys", "none", *options)
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert lines["layout"] == "8 GPUs = pipeline 1 x data 4 x tensor 2, sequence parallel"
    assert lines["precision"].endswith("activations recomputed but for products and attention")
    assert lines["ZeRO"].endswith(", optimizer on the host")


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
    assert (summary["vocab_size"], summary["vocab_source"]) == (50277, "of --vocab-size")
    assert summary["pipeline_partition"] == [0, 13, 25, 36, 49]
    assert summary["keys"]["num_layers"]["value"] == 44
    assert summary["keys"]["num_layers"]["source"].startswith("20B.yml:")
    assert summary["keys"]["optimizer.params.lr"] == {"value": 1e-4, "source": "--set"}
    assert summary["keys"]["optimizer.params.eps"]["source"].startswith("20B.yml:")
    assert summary["flops_per_token"] == summary["flops_per_iteration"] / summary["tokens_per_iteration"]


@pytest.mark.parametrize(
    ("tokenizer", "told", "padded"),
    [
        ({}, "50,257 padded to 50,304; GPT-2's)", 50304),
        ({"tokenizer_type": "CharLevelTokenizer"}, "512 padded to 512; of CharLevelTokenizer)", 512),
        (
            {"tokenizer_type": "HFTokenizer", "vocab_file": "/nonexistent/t.json"},
            "50,257 padded to 50,304; GPT-2's, for that of HFTokenizer is not here: --vocab-size gives it)",
            50304,
        ),
    ],
)
def test_the_vocabulary_is_the_configured_one(
    tokenizer: dict[str, str], told: str, padded: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of a tokenizer that can be made here; GPT-2's, which the line says, in place of another."""
    (tmp_path / "small.yml").write_text(minimal_text(**tokenizer), encoding="utf-8")
    _, out, _ = _run(capsys, "small", "-d", str(tmp_path), "--keys", "none")
    assert told in out
    pair = (str(tmp_path / "small.yml"), "125M")
    assert main(["config", "diff", *pair, "--json"]) == 0
    rows = {row["name"]: row["a"]["value"] for row in json.loads(capsys.readouterr().out)}
    assert rows.get("padded_vocab_size", 50304) == padded


def test_raised_stage_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    """A raised ZeRO stage is seen where the stage stands, with the reason among the warnings."""
    changes = ("--set", "zero_optimization.stage=0", "--set", "mmap_warmup=true")
    _, out, _ = _run(capsys, "125M", *changes, "--keys", "none")
    assert "\nZeRO        stage 1 (--set), raised from 0\n" in out
    assert "\nwarning     ZeRO stage 0 is raised to 1: in bfloat16" in out
    assert "\nwarning     without effect in neoxlite: mmap_warmup (pages are read when they are needed)\n" in out
    assert "\nnote        gradient_clipping 1.0 clips here" in out


def test_unsupported_is_shown_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration that neoxlite cannot train can be looked at; what cannot be counted says so."""
    code, out, _ = _run(capsys, "125M", "--set", 'attention_config=[[["mamba"], "all"]]', "--set", "z_loss=1.0e-4")
    assert code == 0
    assert "cannot train  --set: attention_config: mamba is not supported by neoxlite" in out
    assert "cannot train  --set: z_loss: 0.0001 is not supported by neoxlite: set z_loss: 0" in out
    assert "parameters    not counted" in out
    assert "FLOPs" not in out


def _origins(out: str) -> dict[str, list[str]]:
    return {name: rest for name, *rest in (line.split(None, 2) for line in out.split("\n\n")[1].splitlines())}


def test_each_key_has_an_origin(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The keys that count in training: from a file and line, --set, default, or derived; Japanese stays readable."""
    (tmp_path / "小.yml").write_text(minimal_text(data_path="データ/コーパス"), encoding="utf-8")
    _, out, _ = _run(capsys, "小", "-d", str(tmp_path), "--set", "seed=7", "--world-size", "3")
    rows = _origins(out)
    assert rows["num_layers"] == ["小.yml:1", "4"]
    assert rows["data_path"] == ["小.yml:15", '"データ/コーパス"']
    assert rows["seed"] == ["--set", "7"]
    assert rows["weight_decay"] == ["default", "0.1"]
    assert rows["train_batch_size"] == ["derived", "6"]
    assert rows["attention_config"] == ["derived", '[[["global"], 4]]']
    assert rows["zero_stage"] == ["derived", "0"]
    assert rows["zero_optimization.overlap_comm"] == ["default", "false"]
    assert rows["optimizer.params.lr"] == ["小.yml:11", "0.001"]
    assert "mmap_warmup" not in rows


def test_origins_inside_a_block(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One value of a block overridden, one from the file, one that is derived; an old key's own line."""
    blocks = {"data_types": {"x": 1}, "zero_optimization": {"stage": 1, "overlap_comm": True}}
    adam = {"type": "Adam", "params": {"lr": 0.001}}
    text = minimal_text(bf16={"enabled": True}, optimizer=adam, **blocks)
    (tmp_path / "a.yml").write_text(f"{text}adam_beta1: 0.8\n", encoding="utf-8")
    _, out, _ = _run(
        capsys, "a", "-d", str(tmp_path), "--set", "zero_optimization.stage=0", "--set", "fp16={enabled: no}"
    )
    rows = _origins(out)
    lines = (tmp_path / "a.yml").read_text(encoding="utf-8").splitlines()
    assert rows["zero_optimization.stage"][0] == "--set"
    assert rows["zero_optimization.overlap_comm"][0] == f"a.yml:{lines.index('  overlap_comm: true') + 1}"
    assert rows["data_types.grad_accum_dtype"][0] == "derived"
    assert rows["fp16.enabled"][0] == "--set"
    assert rows["optimizer.params.betas"] == [f"a.yml:{len(lines)}", "[0.8, 0.999]"]


@pytest.mark.parametrize(("which", "some", "count"), [("given", "num_layers", 10), ("all", "wandb_project", 330)])
def test_which_keys(which: str, some: str, count: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Only those that were written, or every key of the table but the text of the files."""
    (tmp_path / "small.yml").write_text(minimal_text(), encoding="utf-8")
    _, out, _ = _run(capsys, "small", "-d", str(tmp_path), "--keys", which)
    rows = _origins(out)
    assert some in rows
    assert len(rows) == count


def test_diff(capsys: pytest.CaptureFixture[str]) -> None:
    """Keys with both values and origins, inside blocks too, and the counts that follow; equal keys are left out."""
    assert main(["config", "diff", "1-3B", "2-7B"]) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["num_layers"] == ["24", "(1-3B.yml:6)", "32", "(2-7B.yml:6)"]
    assert rows["optimizer.params.lr"] == ["0.0002", "(1-3B.yml:25)", "0.00016", "(2-7B.yml:25)"]
    assert rows["parameters"] == ["1,414,647,808", "(derived)", "2,775,208,960", "(derived)"]
    assert all(re.fullmatch(r"\d{1,3}(,\d{3}){4}", rows["flops_per_iteration"][side]) for side in (0, 2))
    assert rows["lr"][1] == "(derived)"
    assert "seq_length" not in rows
    assert "optimizer.params.betas" not in rows


def test_diff_of_several_files_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Files that belong together are joined by commas; a key that one side has not is null and absent there."""
    sides = ["2-7B,runs/2.7B-1node-dp8", "2-7B,runs/2.7B-1node-dp4-pp2"]
    assert main(["config", "diff", *sides, "--world-size", "8", "--json"]) == 0
    rows = {row["name"]: (row["a"]["value"], row["b"]["value"]) for row in json.loads(capsys.readouterr().out)}
    assert rows["pipe_parallel_size"] == (0, 2)
    assert rows["train_batch_size"] == (32, 16)
    assert rows["is_pipe_parallel"] == (False, True)
    assert main(["config", "diff", "125M", "125M", "--set", "zero_optimization.stage=0"]) == 0
    assert capsys.readouterr().out == "no difference\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["125M", "--set", "num_layrs=3"], ["neoxlite: --set: num_layrs is not a GPT-NeoX key", "num_layers"]),
        (["125M", "--world-size", "3", "--set", "pipe_parallel_size=2"], ["3 GPUs cannot be shared out", "use 2 or 4"]),
        (
            ["2-7B", "runs/2.7B-1node-dp8", "--world-size", "16"],
            ["train_batch_size 32 != micro-batch 4", "train_batch_size: 64 with"],
        ),
        (["125M", "--set", "z_loss"], ["--set z_loss: not of the form KEY=VALUE", "write --set"]),
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
    assert "\n    neoxlite config show 2-7B --world-size 16\n" in out


def test_the_short_form_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration where a command belongs: what to type."""
    assert main(["config", "2-7B", "--world-size", "16"]) == 2
    assert "neoxlite config show 2-7B --world-size 16" in capsys.readouterr().err
