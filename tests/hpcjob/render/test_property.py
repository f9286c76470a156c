"""Whatever text a job holds: it arrives unchanged, or is refused with its key; nothing is ever executed."""

from __future__ import annotations

import hashlib
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpcjob.errors import InputError
from hpcjob.render import render
from hpcjob.rendering.variables import is_reserved
from tests.hpcjob.render.plans import PROFILES, plan
from tests.hpcjob.render.world import World

PLACES = [("local", "mpirun"), ("lab", "srun"), ("lab", "pdsh"), ("abci3", "mpirun"), ("abci2", "torchrun")]

HOSTILE = [
    "", " ", "-", "--", "-n", "~", "*", ":", "%", "%n", "%%", "%j", "!", "#", "=", "a=b", "[0]=x",
    "'", '"', "\\", "\\'", "'\\''",
    "$HOME", "${HOME}", "$(touch CANARY)", "`touch CANARY`", "; touch CANARY", "| touch CANARY", "& touch CANARY",
    "'; touch CANARY; '", '"; touch CANARY; "', "\ntouch CANARY\n", "\n#SBATCH --comment=x\n", "\n#$ -l x=1\n", "EOF\n",
    "\nEND_OF_RANK\ntouch CANARY\n", "$'\\x41'", "a\tb", "学習 データ", "{{ 1 }}", "{% raw %}", "{##}", "x" * 10_000,
    "語" * 10_000, "$(touch CANARY)" * 500, "python", "&&", "(", ")", "<(touch CANARY)", ">CANARY", "\u202e\u2028",
]  # fmt: skip

words = st.sampled_from(HOSTILE) | st.text(
    st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t'\"\\$`#%;&|<>(){}[]*?~! -="), max_size=40
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
folders = st.sampled_from(["plain", "it's", 'a "b" $HOME', "学習 100%", "-x", "`touch CANARY`", "a\nb", "#"])

fast = settings(max_examples=30, derandomize=True, deadline=None, database=None)
large = settings(max_examples=1000, derandomize=True, deadline=None, database=None)


def check_arrival(
    place: tuple[str, str], argv: list[str], env: dict[str, str], step_env: dict[str, str], to: str
) -> None:
    """Run a job of these values with stub launchers, and compare what each rank saw."""
    with tempfile.TemporaryDirectory() as folder:
        canary = str(Path(folder) / "canary")
        argv = [word.replace("CANARY", canary) for word in argv]
        env = {name: value.replace("CANARY", canary) for name, value in env.items()}
        world = World(Path(folder), to.replace("CANARY", "c"))
        name, launcher = place
        steps = [{"name": "a 'step'", "command": ["python", "job.py", *argv], "launcher": launcher, "env": step_env}]
        case = world.plan(name, steps=steps, env=env, settings={"node": {"gpus": 0}}, procs_per_node=1)
        run = world.run(case, env={"STUB_GPUS": "1"})
        assert run.code == 0, run.log
        ranks = run.arrived()
        assert len(ranks) == case.world_size
        for rank in ranks:
            assert rank.argv == ["job.py", *argv]
            assert {key: rank.env.get(key) for key in (env | step_env)} == env | step_env
            assert rank.cwd == str(world.submit_dir)
        assert not world.canary.exists()


def arrival(place: tuple[str, str], argv: list[str], env: dict[str, str], step_env: dict[str, str], to: str) -> None:
    for name in {*env, *step_env}:
        assume(not is_reserved(name) and not name.upper().endswith(("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY")))
    assume(
        not {*env, *step_env} & {"STEP", "WORK", "PATH", "LD_PRELOAD", "HOME", "i", "text", "place", "started", "LANG"}
    )
    assume(not any(name.startswith(("LC_", "STUB_")) for name in {*env, *step_env}))
    check_arrival(place, argv, env, step_env, to)


_VALUES: dict[str, Any] = {
    "place": st.sampled_from(PLACES),
    "argv": st.lists(words, max_size=6),
    "env": st.dictionaries(names, words, max_size=4),
    "step_env": st.dictionaries(names, words, max_size=2),
    "to": folders,
}


@fast
@given(**_VALUES)
def test_arguments_and_variables_arrive_unchanged(
    place: tuple[str, str], argv: list[str], env: dict[str, str], step_env: dict[str, str], to: str
) -> None:
    """Blanks, quotes, $, backticks, newlines, Japanese, dashes, 10,000 characters; under every kind of launcher."""
    arrival(place, argv, env, step_env, to)


@pytest.mark.full
@pytest.mark.timeout(3600)
@large
@given(**_VALUES)
def test_arguments_and_variables_arrive_unchanged_many_times(
    place: tuple[str, str], argv: list[str], env: dict[str, str], step_env: dict[str, str], to: str
) -> None:
    """The same with many more examples."""
    arrival(place, argv, env, step_env, to)


@pytest.mark.parametrize("place", PLACES)
def test_every_hostile_value_at_once(place: tuple[str, str]) -> None:
    """All values of the list, as arguments and as variables, in one job under each launcher."""
    env = {f"V{index}": value for index, value in enumerate(HOSTILE)}
    check_arrival(place, HOSTILE, env, {"S1": "\n'$x\\"}, 'it\'s "100%" $(touch c) 学習')


@pytest.mark.parametrize("bad", ["\0", "a\x07", "\x1b[31m", "\r\n", "\x7f", "\x85", "\ud800"])
@pytest.mark.parametrize(
    ("job", "key"),
    [
        ({"env": {"A": "?"}}, "env.A"),
        ({"command": ["python", "?"]}, "command"),
        (
            {"steps": [{"name": "a", "command": ["x"], "env": {"A": "?"}}, {"name": "b", "command": ["?"]}]},
            "steps[0].env.A",
        ),
        ({"name": "?"}, "name"),
        ({"account": "?"}, "account"),
        ({"queue": "?"}, "queue"),
        ({"extra": ["--x=?"]}, "extra"),
        ({"source": ["?"]}, "source"),
        ({"python": {"venv": "?"}}, "python.venv"),
    ],
)
def test_control_characters_are_refused_with_the_key(job: dict[str, Any], key: str, bad: str) -> None:
    """NUL, escape sequences, carriage returns and broken UTF-8 have no place in a script."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner) for inner in value]
        return value.replace("?", f"x{bad}y")

    job = filled(job)
    with pytest.raises(InputError) as caught:
        render(plan("lab", **({"account": job.pop("account")} if "account" in job else {}), **job))
    assert caught.value.message.startswith(f"{key}: ")


@pytest.mark.parametrize("key", ["name", "account", "queue", "extra", "reservation", "exclude"])
def test_a_newline_in_a_directive_is_refused_with_the_key(key: str) -> None:
    """What follows a newline would be a directive or a command of its own."""
    value = "-x\n#SBATCH --comment=y" if key == "extra" else "a\n#SBATCH --comment=y"
    job: dict[str, Any] = {key: [value] if key in ("extra", "exclude") else value}
    with pytest.raises(InputError, match=rf"^{key}: "):
        render(plan("lab", **job))


def test_a_newline_in_the_job_folder_is_refused() -> None:
    """The folder stands in a directive too."""
    with pytest.raises(InputError, match=r"^jobdir: "):
        render(plan("lab"), jobdir="/a\n#SBATCH -n 9")


def directive_lines(script: str) -> list[str]:
    """Return the directives of any scheduler."""
    prefixes = ("#SBATCH ", "#PBS ", "#$ ", "#PJM ")
    return [line for line in script.split("\n") if line.startswith(prefixes)]


def rendered(where: str, **job: Any) -> tuple[str | None, str]:
    """Return the script, or why there is none."""
    try:
        return render(plan(where, **job)), ""
    except InputError as error:
        return None, error.message


@pytest.mark.ci
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(where=st.sampled_from(PROFILES), key=st.sampled_from(["name", "account", "queue"]), value=words.filter(bool))
def test_directive_values_stand_there_whole_or_are_refused(where: str, key: str, value: str) -> None:
    """A word split as the schedulers do it gives the value back; the number of directives stays the same.

    A name alone is made to fit.
    """
    options = {"slurm": ("--job-name=", "--account=", "--partition="), "pbs": ("-N", "-P", "-q"),
               "gridengine": ("-N", None, "-l"), "pjm": ("-N", "-g", "-L"), "local": (None, None, None)}  # fmt: skip
    usual = render(plan(where, queue="q"))
    script, refusal = rendered(where, **{"queue": "q", key: value})
    if script is None:
        assert refusal.startswith(f"{key}: ")
        return
    cluster = plan(where).profile.scheduler
    option = options[cluster.type][["name", "account", "queue"].index(key)]
    expected = {"-l": f"{value}=2", "-L": f"rscgrp={value}"}.get(option or "", value)
    if cluster.account == "group_list" and key == "account":
        option, expected = "-W", f"group_list={value}"
    assert len(directive_lines(script)) == len(directive_lines(usual))
    if option is not None and not (cluster.account in ("none", "-g-cli") and key == "account"):
        found = [shlex.split(line[1:])[1:] for line in directive_lines(script)]
        if key == "name":  # what does not fit is replaced, character by character; where that is most of it, the whole
            (name,) = [words[-1].removeprefix(option) for words in found if words[0].startswith(option)]
            if name == f"job-{hashlib.sha256(value.encode()).hexdigest()[:8]}":
                assert len(re.findall(r"[^A-Za-z0-9._-]", value)) * 2 > len(value)
                return
            name = name if value.startswith("j") else name.removeprefix("j")
            assert all(got in (wanted, "_") for got, wanted in zip(name, value, strict=False))
            return
        assert any(words in ([option + expected], [option, expected]) for words in found)
