"""Arrays, chains and sweeps through the command line, as real jobs of this machine."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjob.cli import main
from hpcjob.tracking.index import read_index
from tests.hpcjob.jobs import submit_local

WORK = "echo value=$0; echo + >>times; sleep 0.4; echo - >>times; codes=(0 1 86); exit ${codes[$1]}"
NO_ROOM = "mkdir $HPCJOB_JOBDIR.code; "  # for what the array notes of the element's end
Hpcjob = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hpcjob(capfd: pytest.CaptureFixture[str]) -> Hpcjob:
    """Run a command; its exit code, and what it printed on stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(list(arguments))
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def write(name: str, **keys: Any) -> str:
    """Write a job file of a command without ranks."""
    Path(name).write_text(yaml.safe_dump({"kind": "cpu", **keys}))
    return name


def told(out: str) -> dict[str, Any]:
    """Return id -> what JSON lines tell of the jobs."""
    return {one["id"]: one for one in map(json.loads, out.splitlines())}


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll for some minutes at most."""
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_array_and_its_elements(here: Path, hpcjob: Hpcjob) -> None:
    """Throttled; one state, log and exit record an element; a failure goes before the larger code of a clean stop."""
    job = write("many.yml", command=["bash", "-c", NO_ROOM + WORK, "{array.value}", "{array.index}"],
                array=["a b", "it's", "日本"], array_limit=1)  # fmt: skip
    code, out, _ = hpcjob("submit", job, "-p", "local", "--json")
    array = json.loads(out)["id"]
    assert json.loads(out)["array"] == "0-2"
    assert hpcjob("wait", array)[0] == 1
    assert (here / "times").read_text().split() == ["+", "-"] * 3
    status = told(hpcjob("status", array, "--json")[1])[array]
    assert (status["state"], status["exit_code"]) == ("FAILED", 1)
    assert status["reason"] == "1 FAILED (1), 1 CANCELLED (2), 1 COMPLETED"
    assert json.loads(next(here.glob(f"outputs/many/*/{array}_exit.json")).read_text())["code"] == 1
    elements = told(hpcjob("status", array, "--elements", "--json")[1])
    assert [(one["id"], one["state"], one["exit_code"]) for one in elements.values()] == [
        (f"{array}_0", "COMPLETED", 0), (f"{array}_1", "FAILED", 1), (f"{array}_2", "CANCELLED", 86),
    ]  # fmt: skip
    for index, value in enumerate(["a b", "it's", "日本"]):
        folder = Path(elements[f"{array}_{index}"]["jobdir"])
        assert folder.name == str(index)
        assert f"value={value}\n" in (folder / f"{array}_{index}_job.out").read_text()
        assert json.loads((folder / f"{array}_{index}_exit.json").read_text())["code"] == (0, 1, 86)[index]
        assert f"value={value}" in hpcjob("tail", f"many_{index}", "-n", "all")[1]
    assert hpcjob("wait", f"{array}[1]")[0] == 1
    code, _, err = hpcjob("status", f"{array}_7")
    assert (code, "has no element 7" in err, "0-2" in err) == (2, True, True)
    assert hpcjob("list", "--json")[1].count('"id"') == 1


@pytest.mark.ci
def test_cancel_an_element_then_the_array(here: Path, hpcjob: Hpcjob) -> None:
    """A running element ends, a waiting one does not start; the rest goes on until the array is cancelled."""
    job = write("many.yml", command=["sleep", "60"], array="0-3", array_limit=2)
    array = json.loads(hpcjob("submit", job, "-p", "local", "--json")[1])["id"]

    def states() -> list[str]:
        return [one["state"] for one in told(hpcjob("status", array, "-e", "--json")[1]).values()]

    wait_until(lambda: states() == ["RUNNING", "RUNNING", "PENDING", "PENDING"])
    assert told(hpcjob("status", array, "--json")[1])[array]["reason"] == "2 RUNNING, 2 PENDING"
    assert "will not start" in hpcjob("cancel", f"{array}_3")[1]
    assert "cancelled" in hpcjob("cancel", f"{array}_0")[1]
    wait_until(lambda: states() == ["CANCELLED", "RUNNING", "RUNNING", "CANCELLED"])
    assert "cancelled, all its processes have ended" in hpcjob("cancel", array)[1]
    assert states() == ["CANCELLED"] * 4
    assert told(hpcjob("status", array, "--json")[1])[array]["state"] == "CANCELLED"


@pytest.mark.ci
def test_walltime_of_an_element(here: Path, hpcjob: Hpcjob) -> None:
    """Each element has the walltime to itself, the last one too: ending the others takes none of it."""
    job = write("many.yml", command=["sleep", "60"], array="0-1%1", walltime=2, stop_before_s=0)
    array = json.loads(hpcjob("submit", job, "-p", "local", "--json")[1])["id"]
    assert hpcjob("wait", array)[0] != 0
    elements = told(hpcjob("status", array, "-e", "--json")[1]).values()
    assert [one["state"] for one in elements] == ["TIMEOUT", "TIMEOUT"]
    log = next(here.glob("outputs/many/*/*_sched.out")).read_text()
    assert "the walltime of 4 s is over" not in log


def test_chain(here: Path, hpcjob: Hpcjob) -> None:
    """One after another; what waits is PENDING and says for what; after a failure the rest is cancelled, with why."""
    first = write("first.yml", command=["bash", "-c", "until [[ -e go ]]; do sleep 0.1; done; touch first"])
    second = write("second.yml", command=["bash", "-c", "[[ -e first ]] && exit 3"])
    third = write("third.yml", command=["touch", "third"])
    code, out, _ = hpcjob("submit", first, second, third, third, "-p", "local", "--chain", "--json")
    ids = list(told(out))
    assert [one["after"] for one in told(out).values()] == [[], *([f"afterok:{job}"] for job in ids[:3])]
    waiting = told(hpcjob("status", ids[2], "--json")[1])[ids[2]]
    assert (waiting["state"], waiting["reason"]) == ("PENDING", f"waits for job {ids[1]} (afterok)")
    (here / "go").touch()
    assert [hpcjob("wait", job)[0] for job in ids] == [0, 3, 1, 1]
    ended = told(hpcjob("status", ids[2], "--json")[1])[ids[2]]
    assert (ended["state"], ended["reason"]) == (
        "CANCELLED",
        f"afterok:{ids[1]} was not satisfied: it ended with code 3",
    )
    last = told(hpcjob("status", ids[3], "--json")[1])[ids[3]]
    assert last["reason"] == f"afterok:{ids[2]} was not satisfied: it was cancelled"
    assert not (here / "third").exists()
    third = write("third.yml", command=["touch", "third"], after={"notok": ids[1], "any": "first"})
    assert hpcjob("submit", third, "-p", "local", "--follow")[0] == 0
    assert (here / "third").exists()
    code, _, err = hpcjob("submit", third, "-p", "local", "--after", "second")
    assert (code, "has ended (FAILED), afterok does not come true any more" in err) == (2, True)


@pytest.mark.ci
def test_cancel_what_waits(here: Path, hpcjob: Hpcjob) -> None:
    """A job that waits for another is cancelled without having run."""
    first = write("first.yml", command=["sleep", "60"])
    second = write("second.yml", command=["touch", "second"])
    ids = list(told(hpcjob("submit", first, second, "-p", "local", "--chain", "--json")[1]))
    assert hpcjob("cancel", *reversed(ids))[0] == 0
    states = [one["state"] for one in told(hpcjob("status", *ids, "--json")[1]).values()]
    assert states == ["CANCELLED", "CANCELLED"]
    assert not (here / "second").exists()


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ("nothing", "no jobs are recorded"),
        ("any:nothing", "no jobs are recorded"),
        ("", "empty name"),
        ("99999999", "no job 99999999 of this machine is recorded"),
        ("any:1", "no job 1 of this machine is recorded"),
    ],
)
def test_after_what_is_not_there(here: Path, hpcjob: Hpcjob, after: str, words: str) -> None:
    """Refused before anything is submitted."""
    code, _, err = hpcjob("submit", write("a.yml", command=["true"]), "-p", "local", "--after", after)
    assert (code, words in err) == (2, True)
    assert not read_index().records
    assert [path.name for path in here.iterdir()] == ["a.yml"]


def test_after_a_job_of_another_machine(here: Path, hpcjob: Hpcjob) -> None:
    """Its pids mean something there alone: refused, and nothing is submitted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "elsewhere")
        there = submit_local("exit 0")
    code, _, err = hpcjob("render", write("a.yml", command=["true"]), "-p", "local", "--after", f"any:{there.id}")
    assert (code, f"job {there.id} is one of elsewhere, this is {socket.gethostname()}" in err) == (2, True)


@pytest.mark.ci
def test_a_sweep(here: Path, hpcjob: Hpcjob) -> None:
    """Four jobs with names that tell them apart; --follow is refused, render shows one."""
    job = write("s.yml", command=["bash", "-c", "echo $A-$B"], sweep={"env.A": ["x", "y"], "env.B": [1, 2]})
    assert hpcjob("submit", job, "-p", "local", "--follow")[0] == 2
    assert not read_index().records
    code, out, err = hpcjob("render", job, "-p", "local", "--point", "3")
    assert (code, "export A=y\nexport B=1\n" in out, err) == (0, True, "")
    assert hpcjob("render", job, "-p", "local", "--point", "5")[0] == 2
    names = [one["name"] for one in told(hpcjob("submit", job, "-p", "local", "--json")[1]).values()]
    assert names == ["s-A=x-B=1", "s-A=x-B=2", "s-A=y-B=1", "s-A=y-B=2"]
    assert hpcjob("wait", *names)[0] == 0
    assert "y-1" in hpcjob("tail", "s-A=y-B=1", "-n", "all")[1]
