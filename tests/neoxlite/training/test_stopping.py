"""How a run ends: on request, for the walltime, by a signal, by the death of a rank, by an error."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_worlds import signal_to, stop_file, train_rank

from neoxlite.checkpoint.folder import find, saved_iterations
from neoxlite.checkpoint.manifest import Manifest

Train = Callable[..., Any]


def checkpoints(folder: Path) -> dict[str, Any]:
    """Return the keys of a run that saves to and resumes from ``folder``."""
    return {"save": str(folder), "load": str(folder), "checkpoint_factor": 100}


@pytest.mark.parametrize(
    ("reason", "outcome", "code"), [("walltime", "saved_for_walltime", 85), ("please", "stopped", 86)]
)
def test_a_stop_file_saves_and_ends_all_ranks(
    reason: str, outcome: str, code: int, train: Train, tmp_path: Path
) -> None:
    """Both ranks end after the iteration in which the file was agreed on; outcome.json and exit code say why."""
    run = train(2, **checkpoints(tmp_path / "ck"), at={3: stop_file(reason)})
    folder = tmp_path / "ck" / "global_step4"
    assert [(end.outcome, end.iteration, end.exit_code) for end in run.outcomes] == [(outcome, 4, code)] * 2
    written = json.loads((run.folder / "outcome.json").read_text())
    assert written == {"outcome": outcome, "iteration": 4, "checkpoint": str(folder), "message": None}
    assert find(tmp_path / "ck") == folder


def test_a_stop_without_save_says_that_nothing_was_saved(train: Train) -> None:
    """The run ends all the same, and its outcome does not claim a checkpoint."""
    end = train(1, at={1: stop_file("walltime")}).outcomes[0]
    assert (end.iteration, end.checkpoint, end.message) == (2, None, "nothing was saved: save is not set")


@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGTERM), (1, signal.SIGTERM), (1, signal.SIGINT)])
def test_a_signal_to_any_rank_stops_all(rank: int, number: int, train: Train, tmp_path: Path) -> None:
    """SIGTERM or Ctrl-C to one rank makes both save at the same iteration and end as stopped on request."""
    run = train(2, **checkpoints(tmp_path / "ck"), at={3: signal_to(rank, number)})
    assert [(end.outcome, end.iteration, end.exit_code) for end in run.outcomes] == [("stopped", 4, 86)] * 2
    assert saved_iterations(tmp_path / "ck") == [4]


@pytest.mark.parametrize(("saves", "told"), [(True, "a checkpoint is saved"), (False, "nothing is saved")])
def test_ctrl_c_says_once_what_happens_now(
    saves: bool, told: str, train: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A terminal sends it to all ranks: one line of rank 0 says whether a checkpoint is saved."""
    where = checkpoints(tmp_path / "ck") if saves else {}
    run = train(2, **where, at={3: lambda ranks, files: os.kill(os.getpid(), signal.SIGINT)})
    assert [(end.outcome, end.iteration, end.exit_code) for end in run.outcomes] == [("stopped", 4, 86)] * 2
    lines = [line for line in capfd.readouterr().err.splitlines() if "Ctrl-C" in line]
    assert len(lines) == 1
    assert told in lines[0]


def test_a_completed_run_says_so(train: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The end of training is saved once, also where it is a multiple of checkpoint_factor; started again, it says why
    nothing happens."""
    run = train(1, **{**checkpoints(tmp_path / "ck"), "checkpoint_factor": 5})
    assert json.loads((run.folder / "outcome.json").read_text()) == {
        "outcome": "completed",
        "iteration": 10,
        "checkpoint": str(tmp_path / "ck" / "global_step10"),
        "message": None,
    }
    again = train(1, **{**checkpoints(tmp_path / "ck"), "checkpoint_factor": 5})
    assert (again.outcomes[0].outcome, again.metrics) == ("completed", [])
    assert capfd.readouterr().out.count("train_iters: 10 is reached: no iteration is left") == 1


@pytest.mark.ci
def test_an_outcome_that_cannot_be_written_is_told_once(
    command: Any, config_of: Any, text_data: str, tmp_path: Path
) -> None:
    """The code says it all the same; the run has trained to its end."""
    config_of(1, data_path=text_data, train_iters=1)
    file = tmp_path / "gone" / "outcome.json"
    code, _, err = command("train", str(tmp_path / "tiny.yml"), environ={"NEOXLITE_OUTCOME_FILE": str(file)})
    assert code == 0
    assert err == f"WARNING: {file} cannot be written: {os.strerror(2)}\n"


def _train_two(world: Any, text_data: str, config_of: Any, tmp_path: Path, events: Any, **changes: Any) -> Any:
    """Start two ranks and return (children, files) without waiting."""
    from neoxlite.training.environment import RunFiles

    files = RunFiles(tmp_path / "stop", tmp_path / "outcome.json", tmp_path / "metrics.jsonl")
    cfg = config_of(2, data_path=text_data, **changes)
    return world.start(2, train_rank, cfg, files, events), files


def test_the_death_of_a_rank_ends_the_other(world: Any, text_data: str, config_of: Any, tmp_path: Path) -> None:
    """kill -9 of rank 1: rank 0 leaves with one line that says so, and its outcome is failed, not missing."""
    events = {4: signal_to(1, signal.SIGKILL)}
    children, files = _train_two(world, text_data, config_of, tmp_path, events, **checkpoints(tmp_path / "ck"))
    with pytest.raises(AssertionError, match="rank 0 lost the other ranks"):
        children[0].result()
    for child in children:
        child.end()
    assert children[1].process.exitcode == -signal.SIGKILL
    outcome = json.loads(files.outcome.read_text())
    assert (outcome["outcome"], outcome["iteration"]) == ("failed", 3)
    assert "lost the other ranks" in outcome["message"]
    assert "\n" not in outcome["message"]


def test_a_rank_that_hangs_is_given_up_after_the_time_out(
    world: Any, text_data: str, config_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped rank does not hold the other for ever: NEOXLITE_TIMEOUT_S bounds every wait, in sub-groups too."""
    monkeypatch.setenv("NEOXLITE_TIMEOUT_S", "3")
    children, _ = _train_two(world, text_data, config_of, tmp_path, {4: signal_to(1, signal.SIGSTOP)})
    with pytest.raises(AssertionError, match="rank 0 lost the other ranks"):
        children[0].result()
    os.kill(children[1].process.pid, signal.SIGKILL)
    for child in children:
        child.end()


def test_a_rank_that_dies_in_a_save_leaves_the_checkpoint_before(
    world: Any, text_data: str, config_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 is killed while it writes: rank 0 does not hang, ``latest`` still names the older, whole checkpoint."""
    from neoxlite.checkpoint import save as saving

    real = saving._write_share

    def die_in_the_second(folder: Path, files: Any, contents: Any, rank: int) -> Any:
        if contents.training["iteration"] == 6 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(folder, files, contents, rank)

    monkeypatch.setattr(saving, "_write_share", die_in_the_second)
    where = {**checkpoints(tmp_path / "ck"), "checkpoint_factor": 3}
    children, files = _train_two(world, text_data, config_of, tmp_path, {}, **where)
    with pytest.raises(AssertionError, match="rank 0 lost the other ranks"):
        children[0].result()
    for child in children:
        child.end()
    folder = find(tmp_path / "ck")
    assert folder == tmp_path / "ck" / "global_step3"
    assert Manifest.read(folder).damage(folder) == []
    assert json.loads(files.outcome.read_text())["checkpoint"] == str(folder)


def test_an_error_is_in_the_outcome_in_one_line(command: Any, config_of: Any, tmp_path: Path) -> None:
    """A missing dataset ends with exit code 2, one line and a hint on stderr, no traceback, and a failed outcome."""
    config_of(1, data_path=str(tmp_path / "無い"))
    outcome = tmp_path / "outcome.json"
    code, _, err = command("train", str(tmp_path / "tiny.yml"), environ={"NEOXLITE_OUTCOME_FILE": str(outcome)})
    assert code == 2
    assert "無い" in err
    assert "Traceback" not in err
    written = json.loads(outcome.read_text())
    assert written["outcome"] == "failed"
    assert "無い" in written["message"]


def test_what_is_not_there_yet_is_refused_by_name(command: Any, tmp_path: Path, text_data: str) -> None:
    """fp16 stops with the key's name before anything is set up."""
    import yaml

    base = {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "seq_length": 8, "max_position_embeddings": 8}
    keys = {**base, "train_micro_batch_size_per_gpu": 1, "train_iters": 1, "data_path": text_data, "precision": "fp16"}
    path = tmp_path / "run.yml"
    path.write_text(yaml.safe_dump({"tokenizer_type": "CharLevelTokenizer", **keys}))
    code, _, err = command("train", str(path))
    assert code == 2
    assert "fp16" in err


def test_the_command_s_exit_code_is_the_outcome_s(command: Any, config_of: Any, text_data: str, tmp_path: Path) -> None:
    """``neoxlite train`` under a stop file of the walltime exits 85, and 0 when it has run to its end."""
    config_of(1, data_path=text_data, **checkpoints(tmp_path / "ck"))
    stop = tmp_path / "stop"
    stop.write_text("walltime\n")
    arguments = ("train", str(tmp_path / "tiny.yml"), "--set", "train_iters=3")
    assert command(*arguments, environ={"NEOXLITE_STOP_FILE": str(stop)})[0] == 85
    code, out, _ = command(*arguments)
    assert code == 0
    assert "Loading checkpoint and starting from iteration 1" in out
    assert saved_iterations(tmp_path / "ck") == [1, 3]
