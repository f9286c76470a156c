"""What ``array:`` may be, what each scheduler is asked for, and how an element learns which it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcjob.arrays import array_of, format_spec, parse_spec, tasks_of, with_lines
from hpcjob.errors import InputError
from hpcjob.job import ArrayLines, JobFile
from hpcjob.precheck import check_training
from hpcjob.render import render
from hpcjob.resources import shipped
from tests.hpcjob.render.plans import plan, profile

COMMAND = ["python", "a.py", "--task={array.value}", "{array.index}"]


def job(**keys: Any) -> JobFile:
    return JobFile(command=["true"], **keys)


@pytest.mark.parametrize(
    ("text", "indices", "shortest"),
    [
        ("0-9", range(10), "0-9"),
        ("0-8:4", (0, 4, 8), "0-8:4"),
        ("7", (7,), "7"),
        ("9,1,3,1", (1, 3, 9), "1,3,9"),
        ("1-3,7,8,9", (1, 2, 3, 7, 8, 9), "1-3,7-9"),
        (" 1 , 2 ", (1, 2), "1-2"),
        ("0-10:4", (0, 4, 8), "0-8:4"),
    ],
)
def test_specs(text: str, indices: range | tuple[int, ...], shortest: str) -> None:
    """sbatch(1)'s ways of writing indices; written back as short as they go, which means the same."""
    assert parse_spec(text) == tuple(indices)
    assert format_spec(parse_spec(text)) == shortest
    assert parse_spec(shortest) == tuple(indices)


def test_values_of_a_list_and_of_a_file(tmp_path: Path) -> None:
    """Lines keep their blanks; blank lines do not count; the file is not looked at again."""
    path = tmp_path / "値 の一覧.txt"
    path.write_bytes("一\r\n\n two words \n$(touch x)\n".encode())
    found = with_lines(job(array=ArrayLines(lines=str(path)), array_limit=2))
    path.unlink()
    array = array_of(found)
    assert array is not None
    assert (array.spec, array.limit) == ("0-2", 2)
    assert [array.value(index) for index in array.indices] == ["一", " two words ", "$(touch x)"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"array": []}, "empty list"),
        ({"array": "0-3%0"}, "from 1 on"),
        ({"array": "0-3%2", "array_limit": 3}, "given twice"),
        ({"array_limit": 3}, "without `array`"),
        ({"array": ArrayLines(lines="/nowhere/x")}, "No such file"),
        ({"array": ArrayLines(lines="/dev/zero")}, "no regular file"),
        ({"array": ["x" * 600_000] * 2}, "bytes"),
        ({"array": "$(id)"}, "not a range"),
    ],
)
def test_refused(keys: dict[str, Any], words: str) -> None:
    """One line that names the key."""
    with pytest.raises(InputError, match=words) as caught:
        array_of(job(**keys))
    assert caught.value.message.startswith("array")
    assert caught.value.hint


def test_damaged_files(tmp_path: Path) -> None:
    """Not UTF-8, empty, too large."""
    for content, words in ((b"\xff\n", "byte 0 is not UTF-8"), (b"\n\n", "no line"), (b"a\n" * 600_000, "more than")):
        (tmp_path / "f").write_bytes(content)
        with pytest.raises(InputError, match=words):
            with_lines(job(array=ArrayLines(lines=str(tmp_path / "f"))))


def directives(where: Any, **keys: Any) -> list[str]:
    """Return the directives about the array of a job's script."""
    script = render(plan(where, kind="cpu", nodes=1, command=COMMAND, **keys))
    starts = ("#SBATCH --array", "#PBS -J", "#PBS -r", "#$ -t", "#PJM --bulk")
    return [line for line in script.splitlines() if line.startswith(starts)]


def test_directives() -> None:
    """sbatch(1), qsub(1B), submit(1), and Fugaku's manual on bulk jobs, each in its own words."""
    free = {"limits": {"array": None}}
    assert directives("lab", array="0-9,20%3") == ["#SBATCH --array=0-9,20%3"]
    assert directives("abci3", array="0-8:4%3") == ["#PBS -J 0-8:4%3", "#PBS -r y"]
    assert directives("abci3", array="1,2,9") == ["#PBS -J 0-2", "#PBS -r y"]
    assert directives("abci2", array="1-9:2%3") == ["#$ -t 1-9:2", "#$ -tc 3"]
    assert directives("abci2", array="0-3") == ["#$ -t 1-4"]
    assert directives(profile("wisteria", **free), array="5-7") == ["#PJM --bulk --sparam 5-7"]
    assert directives(profile("wisteria", **free), array="5,9") == ["#PJM --bulk --sparam 0-1"]


@pytest.mark.parametrize(
    ("where", "changes", "array", "words"),
    [
        ("wisteria", {}, "0-3", "wisteria does not run arrays"),
        ("wisteria", {"limits": {"array": None}}, "0-3%2", "PJM cannot limit"),
        ("abci3", {}, "5", "PBS accepts no array of one element"),
        ("abci3", {"limits": {"array": 10}}, "0-10", "at most 10"),
        ("lab", {"limits": {"array": 1001}}, "0-1001", "less than 1001"),
    ],
)
def test_what_a_scheduler_cannot(where: str, changes: dict[str, Any], array: str, words: str) -> None:
    """Refused, with the reason and another way."""
    with pytest.raises(InputError, match=words) as caught:
        directives(profile(where, **changes), array=array)
    assert caught.value.hint


@pytest.mark.parametrize("spec", ["0-2", "3-9:3", "2,5,6,11"])
@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "gridengine", "pjm"])
def test_the_script_knows_the_element(tmp_path: Path, scheduler: str, spec: str) -> None:
    """The scheduler's number becomes the index that the user gave, and the job's id is ARRAY_INDEX."""
    where = {"slurm": "lab", "pbs": "abci3", "gridengine": "abci2", "pjm": "wisteria"}[scheduler]
    script = render(plan(profile(where, limits={"array": None}), kind="cpu", nodes=1, command=["true"], array=spec))
    head = script.partition("# --- End of the job")[0].replace("exec >>", "echo $job_id $array_index; exit 0; : ")
    tasks = tasks_of(spec, scheduler)
    for position, index in enumerate(parse_spec(spec)):
        task = str(index if tasks.same else tasks.first + position)
        variables = {
            "slurm": {"SLURM_JOB_ID": "99", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": task,
                      "SLURM_SUBMIT_DIR": str(tmp_path)},
            "pbs": {"PBS_JOBID": f"5[{task}].s", "PBS_ARRAY_INDEX": task, "PBS_O_WORKDIR": str(tmp_path)},
            "gridengine": {"JOB_ID": "5", "SGE_TASK_ID": task, "SGE_O_WORKDIR": str(tmp_path)},
            "pjm": {"PJM_JOBID": "5", "PJM_BULKNUM": task, "PJM_O_WORKDIR": str(tmp_path)},
        }[scheduler]  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", head], env={"PATH": os.environ["PATH"], **variables}, cwd=tmp_path, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        server = ".s" if scheduler == "pbs" else ""
        assert done.stdout.splitlines()[-1] == f"5{server}_{index} {index}", done


def test_placeholders() -> None:
    """Values arrive as they are, in words and variables; where the configuration is concerned they must be plain."""
    with pytest.raises(InputError, match="has no `array`"):
        render(plan("lab", command=COMMAND))
    with pytest.raises(InputError, match=r"there is no \{array\.name\}"):
        render(plan("lab", command=["a", "{array.name}"], array="0-1"))
    train = {"configs": ["a.yml"], "set": {"seed": "{array.index}", "lr": "{array.value}", "tag": "run-{array.value}"}}
    script = render(plan("lab", train=train, array=["1e-4", "3e-4"]))
    assert 'seed="$array_index"' in script
    assert 'lr="$array_value"' in script
    assert 'tag="run-\'"$array_value"' in script
    with pytest.raises(InputError, match="not a plain YAML value"):
        plan("lab", train=train, array=["1e-4", "a: b"])


def test_the_configuration_of_the_first_element_is_looked_at() -> None:
    """What the trainer would refuse of it is refused at submission, with its index and value in place."""
    configs = [str(shipped("cluster_profiles").parent / "neoxlite" / "configs" / "125M.yml")]

    def check(array: Any, **settings: Any) -> None:
        check_training(plan("lab", train={"configs": configs, "set": settings}, array=array))

    check("3-4", seed="{array.index}", train_iters=10)
    check(["1e-4", "3e-4"], train_iters=10, **{"optimizer.params.lr": "{array.value}"})
    with pytest.raises(InputError, match="seed must be a whole number"):
        check(["many", "few"], seed="{array.value}", train_iters=10)
