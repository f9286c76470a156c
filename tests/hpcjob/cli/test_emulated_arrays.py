"""Arrays and chains on PBS and PJM, whose commands are emulated: elements, codes, cancelling, what waits for them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjob.schedulers.command_scheduler import CommandScheduler
from hpcjob.tracking import submission
from hpcjob.tracking.records import Record
from tests.emulators.emulator import COMMANDS
from tests.emulators.faults import put_faults, start, stop
from tests.hpcjob.cli.test_emulated import BOTH, MakeSite, Site, System, site
from tests.hpcjob.jobs import with_path

__all__ = ["site"]

FREE = ["--set", "profile.limits.array=null"]
UNTIL_TOLD = "until [[ -e go ]]; do sleep 0.1; done"
WORK = "echo value=$0; sleep 0.3; exit $1"


def write(name: str, **keys: Any) -> str:
    """Write a job file of a command without ranks."""
    Path(name).write_text(yaml.safe_dump({"kind": "cpu", "modules": [], **keys}))
    return name


def submit(place: Site, *arguments: str) -> list[dict[str, Any]]:
    """Submit job files; what is told of each job."""
    code, out, err = place.hpcjob("submit", *arguments, "-p", "site", "--account", "gg53", "--json", *FREE)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.ci
@pytest.mark.parametrize("system", BOTH)
def test_an_array(site: MakeSite, system: System) -> None:
    """Each element has its value, log and code, under the indices of the job file; the largest code is the array's."""
    place = site(system, banner="Maintenance on 12/25: 123 nodes")
    job = write(
        "many.yml", command=["bash", "-c", WORK, "{array.value}", "{array.index}"], array=["a b", "it's", "日本"]
    )
    (array,) = submit(place, job)
    assert array["array"] == "0-2"
    assert "[" not in array["id"]
    assert place.hpcjob("wait", array["id"])[0] == 2
    status = place.status()
    assert (status["state"], status["exit_code"], status["reason"]) == ("FAILED", 2, "2 FAILED (1-2), 1 COMPLETED")
    for index, value in enumerate(["a b", "it's", "日本"]):
        element = place.status(f"{array['id']}_{index}")
        assert (element["state"], element["exit_code"]) == ("FAILED" if index else "COMPLETED", index)
        assert f"value={value}" in place.hpcjob("tail", f"many_{index}", "-n", "all")[1]
    assert place.status(f"{array['id'].partition('.')[0]}[1]")["exit_code"] == 1, "as PBS and PJM write it"


@pytest.mark.ci
def test_elements_that_pbs_and_pjm_count_differently(site: MakeSite) -> None:
    """A list of indices is a range of these schedulers; the throttle is PBS's own; one element is told from another."""
    place = site("pbs")
    job = write("many.yml", command=["bash", "-c", "echo + >>t; sleep 0.5; echo - >>t; [[ $0 != 9 ]]", "{array.index}"],
                array="2,5,9", array_limit=1)  # fmt: skip
    (array,) = submit(place, job)
    assert place.hpcjob("wait", array["id"])[0] == 1
    states = [place.status(f"{array['id']}_{index}")["state"] for index in (2, 5, 9)]
    assert states == ["COMPLETED", "COMPLETED", "FAILED"]
    assert Path("t").read_text().split() == ["+", "-"] * 3


@pytest.mark.ci
@pytest.mark.parametrize("system", BOTH)
def test_cancel_one_element(site: MakeSite, system: System) -> None:
    """The others go on; then the array ends with all that is left of it."""
    place = site(system)
    (array,) = submit(place, write("many.yml", command=["sleep", "60"], array="0-1"))
    place.until("RUNNING", f"{array['id']}_1")
    assert place.hpcjob("cancel", f"{array['id']}_0")[0] == 0
    place.until("CANCELLED", f"{array['id']}_0")
    assert place.status(f"{array['id']}_1")["state"] == "RUNNING"
    assert place.status()["reason"] == "1 RUNNING, 1 CANCELLED (0)"
    assert place.hpcjob("cancel", array["id"])[0] == 0
    assert place.until("CANCELLED")["reason"].startswith("all 2 elements")


@pytest.mark.ci
@pytest.mark.parametrize("system", BOTH)
def test_a_query_that_fails_ends_no_element(site: MakeSite, system: System) -> None:
    """Half an answer says nothing of the elements that are not in it."""
    place = site(system)
    (array,) = submit(place, write("many.yml", command=["bash", "-c", UNTIL_TOLD], array="0-2"))
    place.until("RUNNING")
    for bad in ({"down": True}, {"down": False, "cut": 300}):
        place.emulator.set(**bad)
        assert place.status()["state"] in {"UNKNOWN", "RUNNING"}
    place.emulator.set(cut=None)
    Path("go").touch()
    assert place.hpcjob("wait", array["id"])[0] == 0


@pytest.mark.ci
def test_chain_on_pbs(site: MakeSite) -> None:
    """afterok; after a failure PBS removes what waits without a word, and all behind it: the status says so."""
    place = site("pbs")
    jobs = [write("a.yml", command=["bash", "-c", UNTIL_TOLD]),
            write("b.yml", command=["bash", "-c", "exit 3"]),
            write("c.yml", command=["touch", "c"]), write("d.yml", command=["touch", "d"])]  # fmt: skip
    ids = [job["id"] for job in submit(place, *jobs, "--chain")]
    assert place.status(ids[1])["state"] == "PENDING"
    Path("go").touch()
    assert [place.hpcjob("wait", job)[0] for job in ids[:2]] == [0, 3]
    for job in ids[2:]:
        assert place.until("CANCELLED", job)["reason"] == "PBS removed it: its dependency was not satisfied"
    assert not Path("c").exists()


@pytest.mark.ci
def test_after_an_array_on_pbs(site: MakeSite) -> None:
    """PBS judges an array by the element that ends last; the script looks at all of them."""
    place = site("pbs")
    job = write("many.yml", command=["bash", "-c", f"[[ $0 == 0 ]] && exit 1; {UNTIL_TOLD}", "{array.index}"],
                array="0-1")  # fmt: skip
    (array,) = submit(place, job)
    (after,) = submit(place, write("after.yml", command=["touch", "after"]), "--after", array["id"])
    place.until("FAILED", f"{array['id']}_0")
    Path("go").touch()
    assert place.emulator.jobs[after["id"].partition(".")[0]]["after"][0][0] == "afterany"
    assert place.hpcjob("wait", after["id"])[0] == 87
    assert f"check: after: job {array['id']} has not ended with code 0" in place.hpcjob("tail", after["id"])[1]
    assert not Path("after").exists()


@pytest.mark.ci
def test_pbs_holds_for_ever_what_waits_for_a_deleted_job(site: MakeSite) -> None:
    """Deleted before it ran: PBS never starts what waits for it, and cancel says so."""
    place = site("pbs", full=True)
    first, second = (job["id"] for job in submit(
        place, write("a.yml", command=["true"]), write("b.yml", command=["true"]), "--chain"))  # fmt: skip
    code, _, err = place.hpcjob("cancel", first)
    assert (code, f"cancel it too ({second})" in err) == (0, True)
    place.emulator.set(full=False)
    time.sleep(0.5)
    assert place.status(second)["state"] == "PENDING"


@pytest.mark.ci
def test_steps_of_pjm(site: MakeSite) -> None:
    """A chain is one step job; its order is PJM's, the codes are looked at by the scripts."""
    place = site("pjm")
    jobs = [write("a.yml", command=["bash", "-c", f"{UNTIL_TOLD}; touch a"]),
            write("b.yml", command=["bash", "-c", "[[ -e a ]] && exit 3"]),
            write("c.yml", command=["touch", "c"])]  # fmt: skip
    ids = [job["id"] for job in submit(place, *jobs, "--chain")]
    number = ids[0].partition("_")[0]
    assert ids == [f"{number}_0", f"{number}_1", f"{number}_2"]
    Path("go").touch()
    assert [place.hpcjob("wait", job)[0] for job in ids] == [0, 3, 87]
    code, told, _ = place.hpcjob("explain", ids[2])
    assert (code, f"comes after another: job {ids[1]} has not ended with code 0\n" in told) == (66, True)
    assert not Path("c").exists()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("code", "seen"), [(0, True), (0, False), (3, True), (3, False)], ids=["well", "well-late", "ill", "ill-late"]
)
def test_a_step_of_pjm_that_ends_before_the_next_is_submitted(
    site: MakeSite, monkeypatch: pytest.MonkeyPatch, code: int, seen: bool
) -> None:
    """pjsub takes no step after it: having ended well it is not waited for, else the rest is refused.

    It ends before hpcjob looks at it (``seen``), or between that look and pjsub.
    """
    place = site("pjm")
    submit_one = submission.submit

    def ended() -> None:
        Path("go").touch()
        while any(job["state"] != "ended" for job in place.emulator.jobs.values()):
            time.sleep(0.05)

    def slowly(prepared: submission.Prepared, **options: Any) -> Record:
        is_second = prepared.submission.plan.name == "b"
        if is_second and not seen and len(place.emulator.jobs) == 1:
            ended()
        record = submit_one(prepared, **options)
        if prepared.submission.plan.name == "a" and seen:
            ended()
        return record

    monkeypatch.setattr(submission, "submit", slowly)
    files = [write("a.yml", command=["bash", "-c", f"{UNTIL_TOLD}; exit {code}"]),
             write("b.yml", command=["bash", "-c", "until [[ -e on ]]; do sleep 0.1; done"]),
             write("c.yml", command=["true"])]  # fmt: skip
    rc, out, err = place.hpcjob("submit", *files, "-p", "site", "--account", "g", "--chain", "--json")
    ids = [json.loads(line)["id"] for line in out.splitlines()]
    number = int(ids[0].partition("_")[0])
    if code:
        assert (rc, len(ids), len(place.emulator.jobs)) == (2, 1, 1)
        assert f"job {ids[0]} has ended (FAILED), afterok does not come true any more" in err
        assert f"submitted before this: {ids[0]}" in err
        return
    assert rc == 0, err
    assert f"note: after: job {ids[0]} has ended (COMPLETED); there is nothing to wait for" in err
    assert ids == [f"{number}_0", f"{number + 1}_0", f"{number + 1}_1"]
    Path("on").touch()
    assert [place.hpcjob("wait", job)[0] for job in ids] == [0, 0, 0]


@pytest.mark.ci
def test_pjm_has_no_other_dependencies(site: MakeSite) -> None:
    """A plain job cannot be waited for: it is said, with what can."""
    place = site("pjm", full=True)
    (first,) = submit(place, write("a.yml", command=["true"]))
    job = write("b.yml", command=["true"])
    code, _, err = place.hpcjob("submit", job, "-p", "site", "--account", "g", "--after", first["id"])
    assert (code, "is not a step" in err, "--chain" in err) == (2, True, True)
    assert len(place.emulator.jobs) == 1


@pytest.mark.ci
@pytest.mark.parametrize("system", BOTH)
def test_a_lost_answer_is_found(site: MakeSite, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submit command fails although the array is queued: found, recorded as an array, submitted once."""
    monkeypatch.setattr(submission, "_LOOKUP_PAUSES_S", (0.0, 0.1, 0.1, 0.1))
    place = site(system, lose_answer=True, full=True)
    (array,) = submit(place, write("many.yml", command=["bash", "-c", "exit $0", "{array.index}"], array="0-1"))
    assert sum("array" not in job for job in place.emulator.jobs.values()) == 1
    place.emulator.set(full=False)
    assert place.hpcjob("wait", array["id"])[0] == 1
    assert place.status(f"{array['id']}_1")["exit_code"] == 1


@pytest.mark.ci
@pytest.mark.parametrize("system", BOTH)
def test_commands_that_fail_end_no_element(
    site: MakeSite, system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of ten commands fail: no end is told that has not come, none is another than it was."""
    monkeypatch.setattr(CommandScheduler, "query_timeout_s", 1.0)
    place = site(system)
    work = f"{UNTIL_TOLD}; exit $0"
    (array,) = submit(place, write("many.yml", command=["bash", "-c", work, "{array.index}"], array="0-2"))
    place.until("RUNNING")
    faulty = put_faults(tmp_path / "faults", COMMANDS[system], seed=11)
    monkeypatch.setenv("PATH", with_path(faulty))
    start(tmp_path / "faults")
    for poll in range(20):
        if poll == 10:
            Path("go").touch()
        told = [json.loads(line) for line in place.hpcjob("status", array["id"], "-e", "--json")[1].splitlines()]
        for index, element in enumerate(told):
            if element["state"] not in ("RUNNING", "PENDING", "COMPLETING", "UNKNOWN"):
                assert poll >= 10, "it has not ended"
                assert (element["state"], element["exit_code"]) == ("FAILED" if index else "COMPLETED", index)
    stop(tmp_path / "faults")
    assert place.hpcjob("wait", array["id"])[0] == 2
    assert place.status()["reason"] == "2 FAILED (1-2), 1 COMPLETED"
