"""What the trainer would refuse after hours in the queue is refused, or said, at submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.cli import main

MODEL = "num_layers: 1\nhidden_size: 32\nnum_attention_heads: 2\nseq_length: 8\nmax_position_embeddings: 8\n"
RUN = MODEL + "train_batch_size: 8\ntrain_micro_batch_size_per_gpu: 2\ntrain_iters: 2\nlr_decay_iters: 2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A submit folder with a model's configuration; the batch of 8 divides by 2 x 4 ranks, not by 2 x 3."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("hpcjob.precheck._DRIVER", tmp_path / "gpus")
    (tmp_path / "run.yml").write_text(RUN + "data_path: here\nvocab_file: tok.json\n")
    (tmp_path / "job.yml").write_text("profile: local\nprocs_per_node: 4\ntrain: {configs: [run.yml]}\n")
    for suffix in (".bin", ".idx"):
        (tmp_path / f"here{suffix}").touch()
    (tmp_path / "tok.json").touch()
    return tmp_path


def _dry(*more: str) -> int:
    return main(["submit", "job.yml", "--dry-run", *more])


def test_a_run_that_fits_is_not_remarked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data and tokenizer are there, the batch divides: no note."""
    assert _dry() == 0
    assert capsys.readouterr().err == ""


def test_fewer_gpus_here_than_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the profile of this machine does not say is seen when a job is submitted; on the CPUs it does not matter."""
    (folder / "gpus/0000:01:00.0").mkdir(parents=True)
    assert _dry() == 0
    assert capsys.readouterr().err == (
        "hpcjob: note: 4 ranks, and this machine shows 1 GPU: with a torch for CUDA the run is refused; "
        "--set procs_per_node=1, or --env DS_ACCELERATOR=cpu\n"
    )
    assert _dry("--env", "DS_ACCELERATOR=cpu") == 0
    assert capsys.readouterr().err == ""
    for number in range(3):
        (folder / f"gpus/{number}").mkdir()
    assert _dry() == 0
    assert capsys.readouterr().err == ""


def test_all_that_is_wrong_is_told_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files, configuration and account: one look, and what is right is not remarked."""
    wrong = ["--set", "procs_per_node=3", "--set", "source=[a.sh, b.sh]", "--set", "python={venv: none}"]
    wrong += ["-p", "abci3", "--set", "profile.paths.not_shared=[]", "--set", "launcher=mpirun"]
    assert _dry(*wrong) == 2
    out, error = capsys.readouterr()
    told = [line for line in error.splitlines() if line.startswith("hpcjob: ") and ": note: " not in line]
    lacking = "a.sh does not exist here; nor does source: b.sh; nor does python.venv: none/bin/activate"
    assert told[0] == f"hpcjob: --set source: {lacking}"
    assert len(told) == 3
    assert error.count("\n        ") == 3, "each with its hint"
    assert told[1].startswith("hpcjob: train: neoxlite would reject the configuration: ")
    assert told[2].startswith("hpcjob: account: none given")
    assert out == ""


def test_what_rendering_refuses_hides_no_other_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that Slurm's --output cannot name, and a file that is not there."""
    quoted = folder / 'a"b'
    quoted.mkdir()
    (quoted / "job.yml").write_text("schema: 1\nname: a\ncommand: [a]\nsource: [gone.sh]\n")
    monkeypatch.chdir(quoted)
    assert _dry("-p", "lab", "--set", "profile.paths.not_shared=[]") == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hpcjob: ")]
    assert told[0] == "hpcjob: job.yml:4: source: gone.sh does not exist here"
    assert told[1].startswith("hpcjob: jobdir: slurm cannot take")
    assert len(told) == 2


def test_the_number_of_ranks_is_the_jobs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three ranks cannot share a batch of 8 in micro-batches of 2: the trainer's own equation, before the queue."""
    assert _dry("--set", "procs_per_node=3") == 2
    error = capsys.readouterr().err
    assert error.startswith("hpcjob: train: neoxlite would reject the configuration: ")
    assert "8 != micro-batch 2 x accumulation 1 x data parallel 3 = 6" in error
    assert "or submit anyway with --no-check" in error
    assert _dry("--set", "procs_per_node=3", "--no-check") == 0


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.set.hiden_size=3", "hiden_size is not a GPT-NeoX key"),
        ("train.configs=[nosuch.yml]", "nosuch.yml"),
        ("train.set.num_attention_heads=5", "num_attention_heads"),
    ],
)
def test_mistakes_in_the_configuration(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: str, words: str
) -> None:
    """A key, a file and a value that the trainer does not take."""
    assert _dry("--set", setting) == 2
    assert words in capsys.readouterr().err


def test_a_mistake_is_told_with_its_place_in_the_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the trainer is given as options stands in the job file, in a step of it, or in an option of this command."""
    refused, rest = "neoxlite would reject the configuration", "? or submit anyway with --no-check\n"
    (folder / "job.yml").write_text("profile: local\ntrain:\n  configs: [run.yml]\n  set: {hiden_size: 3}\n")
    assert _dry() == 2
    error = capsys.readouterr().err
    assert error.startswith(f"hpcjob: train: {refused}: job.yml:4: hiden_size is not a GPT-NeoX key\n")
    assert error.endswith(rest)
    assert _dry("--set", "train.set.hiden_size=4") == 2
    assert f"{refused}: --set train.set.hiden_size: hiden_size is not a GPT-NeoX key" in capsys.readouterr().err
    step = "steps:\n- name: fit\n  train:\n    configs: [run.yml]\n    set:\n      hiden_size: 3\n"
    (folder / "job.yml").write_text(f"profile: local\n{step}")
    assert _dry() == 2
    assert capsys.readouterr().err.startswith(f"hpcjob: fit: {refused}: job.yml:7: hiden_size is not a GPT-NeoX key\n")


@pytest.mark.parametrize(
    ("setting", "least"),
    [
        ("train_micro_batch_size_per_gpu=4", None),
        # 2^20 tokens of 32 x 2 x 2560 + 36 x 2560 bytes: 250 GiB; 12 x 32 x 2560^2 parameters of 2 + 12 / 8 bytes: 8.2
        ("train_micro_batch_size_per_gpu=512", 258),
        ("precision=fp16", None),
        ("num_layers=256", 103),  # 12 x 256 x 2560^2 parameters of 2 + 2 + 12 / 8 bytes
    ],
)
def test_what_no_gpu_has_room_for_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: str, least: int | None
) -> None:
    """2-7B on a node of eight GPUs of 40 GB, before the queue and not after it."""
    more = "bf16: null" if "fp16" in setting else "pipe_parallel_size: 1"
    job = f"profile: lab\npython: {{executable: /bin/true}}\ntrain: {{configs: [2-7B.yml], set: {{{more}}}}}\n"
    (folder / "job.yml").write_text(job)
    _dry("--set", f"train.set.{setting}")
    noted = [line for line in capsys.readouterr().err.splitlines() if "a GPU needs" in line]
    assert [line.partition(" GiB")[0] for line in noted] == (
        [f"hpcjob: note: train: a GPU needs {least}"] if least else []
    )


def test_data_that_is_not_there_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a dataset and no tokenizer: notes, since they may come before the job starts."""
    (folder / "here.idx").unlink()
    (folder / "tok.json").unlink()
    assert _dry() == 0
    error = capsys.readouterr().err
    assert "hpcjob: note: train: data_path: here has no .idx here\n" in error
    assert "hpcjob: note: train: vocab_file: tok.json does not exist here\n" in error


def test_what_an_earlier_step_makes_is_not_missed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a first step must find its data."""
    (folder / "here.bin").unlink()
    steps = "[{name: make, command: [touch, here.bin]}, {name: fit, train: {configs: [run.yml]}}]"
    (folder / "job.yml").write_text(f"profile: local\nsteps: {steps}\n")
    assert _dry() == 0
    assert capsys.readouterr().err == ""


def test_idle_gpus_and_an_absent_python_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two ranks on a node of eight GPUs cost eight; a --python that is not here is not guessed at."""
    argv = ["render", "job.yml", "-p", "abci", "-A", "gxx", "--set", "procs_per_node=2"]
    assert main(argv) == 0
    assert "2 ranks on each node of 8 GPUs: the others stay idle" in capsys.readouterr().err
    assert main([*argv, "--python", "/groups/gxx/venv"]) == 2
    assert "--set python.venv=PATH" in capsys.readouterr().err
