"""How a job ends: asked to stop, killed in one place, or at its walltime; what is recorded, and that nothing stays."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hpcjob.plan import Plan
from hpcjob.render import render
from tests.hpcjob.render.plans import plan
from tests.hpcjob.render.running import Running, running
from tests.hpcjob.render.world import World

pytestmark = pytest.mark.ci  # whole runs

TRAINER = """
trap '' TERM
while [[ ! -e $NEOXLITE_STOP_FILE ]]; do sleep 0.1; done
case $(<"$NEOXLITE_STOP_FILE") in walltime) outcome=saved_for_walltime ;; *) outcome=stopped ;; esac
[[ $RANK != 0 ]] || echo "{\\"outcome\\": \\"$outcome\\"}" >"$NEOXLITE_OUTCOME_FILE"
until [[ -s $NEOXLITE_OUTCOME_FILE ]]; do sleep 0.1; done
exit 9
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A cluster of stubs."""
    return World(tmp_path, "it's 学習")


@contextmanager
def job(world: World, case: Plan) -> Iterator[Running]:
    """Run a plan's script in the background."""
    script = world.folder / "script.sh"
    script.write_text(render(case), encoding="utf-8")
    command, environment, _ = world.start(case.profile.scheduler.type, script)
    with running(command, environment, world.submit_dir) as started:
        yield started


def record(job: Running) -> dict[str, Any]:
    """Return the exit record."""
    (path,) = job.jobdir.glob("*_exit.json")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@pytest.mark.parametrize(
    ("number", "code", "said", "launcher"),
    [(signal.SIGUSR2, 85, None, "torchrun"), (signal.SIGTERM, 86, "TERM", "srun")],
)
def test_a_signal_to_the_script_stops_the_training_in_time(
    world: World, number: int, code: int, said: str | None, launcher: str
) -> None:
    """USR2 is Slurm's warning before the walltime, TERM an end: the trainer is asked by the stop file."""
    case = world.plan("lab", train={"configs": ["x.yml"]}, launcher=launcher, env={"WORK": TRAINER})
    with job(world, case) as started:
        started.wait_for(lambda: len([*started.jobdir.glob("arrived.*.env")]) == 4, "start of the ranks")
        os.kill(started.script.pid, number)
        assert started.end() == code, started.log()
        assert (record(started)["code"], record(started)["signal"], record(started)["step"]) == (code, said, "train")


def test_a_stop_file_by_hand_stops_the_training(world: World) -> None:
    """Whoever creates the file asks for the stop."""
    case = world.plan("lab", train={"configs": ["x.yml"]}, env={"WORK": TRAINER})
    with job(world, case) as started:
        started.wait_for(lambda: len([*started.jobdir.glob("arrived.*.env")]) == 4, "start of the ranks")
        (started.jobdir / "stop").write_text("request\n")
        assert started.end() == 86


def test_timer_stops_the_training_where_no_signal_comes(world: World) -> None:
    """PBS sends nothing before the walltime: the script's own timer asks."""
    case = world.plan(
        "miyabi", train={"configs": ["x.yml"]}, env={"WORK": TRAINER}, walltime="12s", stop_before_s=3, launcher="pdsh"
    )
    with job(world, case) as started:
        assert started.end() == 85, started.log()


def test_a_stop_between_steps_starts_no_further_one(world: World) -> None:
    """A command knows nothing of the stop file; the step after it is not started, and the code says why."""
    wait = "while [[ ! -e $NEOXLITE_STOP_FILE ]]; do sleep 0.1; done"
    steps = [
        {"name": "one", "command": ["python", "x"], "env": {"STEP": "1", "WORK": wait}},
        {"name": "two", "command": ["python", "x"], "env": {"STEP": "2"}},
    ]
    with job(world, world.plan("lab", steps=steps)) as started:
        started.wait_for(lambda: any(started.jobdir.glob("arrived1.*.env")), "start")
        os.kill(started.script.pid, signal.SIGUSR1)  # a warning too: Grid Engine's s_rt, Slurm's --signal=B:USR1@300
        assert started.end() == 85
        assert not [*started.jobdir.glob("arrived2.*")]


def test_a_command_is_ended_by_a_signal(world: World) -> None:
    """A command that is no training is not waited for; the record has the signal, whichever would end a script."""
    case = world.plan("lab", launcher="srun", env={"WORK": "sleep 600"})
    with job(world, case) as started:
        started.wait_for(lambda: len([*started.jobdir.glob("arrived.*.env")]) == 4, "start of the ranks")
        os.kill(started.script.pid, signal.SIGPIPE)  # not ALRM, by which bash 4.4 ends a timed read
        assert started.all_gone() == 141
        assert (record(started)["code"], record(started)["signal"]) == (141, "PIPE")


def test_ranks_that_ignore_signals_and_leave_their_session_are_ended(world: World) -> None:
    """The launcher is killed; its ranks ignore TERM, and have children in sessions of their own: all are gone."""
    work = "trap '' TERM HUP INT; setsid sleep 600 & sleep 600; sleep 600"
    case = world.plan("lab", launcher="srun", env={"WORK": work})
    with job(world, case) as started:
        started.wait_for(lambda: len([*started.jobdir.glob("arrived.*.env")]) == 4, "start of the ranks")
        started.kill("bin/srun")
        assert started.all_gone() == 137


def test_script_that_is_killed_takes_its_job_along(world: World) -> None:
    """SIGKILL leaves no time for a record; the ranks end all the same."""
    case = world.plan("lab", launcher="pdsh", env={"WORK": "sleep 600"})
    with job(world, case) as started:
        started.wait_for(lambda: len([*started.jobdir.glob("arrived.*.env")]) == 4, "start of the ranks")
        os.kill(started.script.pid, signal.SIGKILL)
        started.all_gone()
        assert not [*started.jobdir.glob("*_exit.json")]


def test_a_node_that_fails_ends_the_others(world: World) -> None:
    """pdsh waits for all nodes: the ranks of the node that is well must not wait for those that are gone."""
    work = "((RANK < 2)) || exit 5; sleep 600"
    case = world.plan("lab", launcher="pdsh", env={"WORK": work})
    with job(world, case) as started:
        assert started.all_gone() == 5, started.log()


def test_signals_to_a_rank_reach_its_program(world: World) -> None:
    """Launchers and schedulers signal the process that they started, the rank's script: its program hears them all."""
    work = """
    hear() { echo "$1" >>"$HPCJOB_JOBDIR/heard.$RANK"; }
    for name in HUP USR1 USR2; do trap "hear $name" "$name"; done
    trap 'exit 3' TERM
    echo "$PPID" >"$HPCJOB_JOBDIR/script.$RANK"
    while :; do sleep 0.1; done
    """
    with job(world, world.plan("lab", launcher="srun", env={"WORK": work})) as started:
        scripts = [started.jobdir / f"script.{rank}" for rank in range(4)]
        started.wait_for(lambda: all(path.exists() and path.read_text() for path in scripts), "start of the ranks")
        script, heard = int(scripts[2].read_text()), started.jobdir / "heard.2"
        heard.touch()
        names = ["HUP", "USR1", "USR2"]  # INT and QUIT are ignored below the stub: it is a shell without job control
        for count, name in enumerate(names, 1):
            os.kill(script, signal.Signals[f"SIG{name}"])
            started.wait_for(lambda count=count: len(heard.read_text().split()) == count, name)  # type: ignore[misc]
        assert heard.read_text().split() == names
        os.kill(script, signal.SIGTERM)
        assert started.all_gone() == 3
        assert "rank 2 on " in (started.jobdir / "abort").read_text()


def test_script_of_a_rank_that_is_killed_ends_all(world: World) -> None:
    """SIGKILL to the process that the launcher started, while its program ignores signals and others run on."""
    work = 'trap \'\' TERM; echo "$PPID" >"$HPCJOB_JOBDIR/script.$RANK"; while :; do sleep 1; done'
    with job(world, world.plan("lab", launcher="srun", env={"WORK": work})) as started:
        scripts = [started.jobdir / f"script.{rank}" for rank in range(4)]
        started.wait_for(lambda: all(path.exists() and path.read_text() for path in scripts), "start of the ranks")
        os.kill(int(scripts[1].read_text()), signal.SIGKILL)
        assert started.all_gone() == 137
        assert (started.jobdir / "abort").read_text().startswith("137 rank 1 on ")


@pytest.mark.parametrize("code", [85, 86])
def test_a_rank_that_has_saved_does_not_end_the_others(world: World, code: int) -> None:
    """The codes of a trainer that has saved are no failure: rank 0 may take its time."""
    outcome = {85: "saved_for_walltime", 86: "stopped"}[code]
    work = f"""
    ((RANK == 0)) || exit {code}
    trap 'exit 9' TERM
    sleep 4
    echo '{{"outcome": "{outcome}"}}' >"$NEOXLITE_OUTCOME_FILE"
    exit {code}
    """
    run = world.run(world.plan("lab", train={"configs": ["x.yml"]}, launcher="srun", env={"WORK": work}))
    assert run.code == code, run.log
    assert not (run.jobdir / "abort").exists()


def test_a_crash_after_the_outcome_does_not_end_the_next_step(world: World) -> None:
    """The trainer said it has completed, and a rank crashed on its way out: the step after it runs."""
    crash = """
    ((RANK)) || echo '{"outcome": "completed"}' >"$NEOXLITE_OUTCOME_FILE"
    until [[ -s $NEOXLITE_OUTCOME_FILE ]]; do sleep 0.1; done
    exit 7
    """
    steps = [
        {"name": "train", "train": {"configs": ["x.yml"]}, "env": {"STEP": "1", "WORK": crash}},
        {"name": "after", "command": ["python", "x"], "env": {"STEP": "2", "WORK": "sleep 3"}},
    ]
    run = world.run(world.plan("lab", steps=steps, launcher="srun"))
    assert run.code == 0, run.log
    assert len(run.arrived("2")) == 1


# --- the real launchers of this machine -----------------------------------------------------------------------------

SPEAK = "import os, sys; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], *sys.argv[1:], flush=True)"
SLEEP = f"{SPEAK}; import time; time.sleep(600)"
TORCHRUN_KILLS = "forcefully exiting"  # said by torchrun when ranks have ignored TERM for 30 s
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@contextmanager
def real_job(folder: Path, launcher: str, code: str, *arguments: str) -> Iterator[Running]:
    """Run two ranks of a Python program by a launcher of this machine, on the profile ``local`` as it is shipped."""
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        assert not os.environ.get("CI"), "CI installs Open MPI"
        pytest.skip("there is no mpirun on this machine")
    case = plan(
        "local",
        name="学習 1",
        procs_per_node=2,
        launcher=launcher,
        command=["python", "-c", code, *arguments],
        interpreter=sys.executable,
    )
    script = folder / "script.sh"
    script.write_text(render(case), encoding="utf-8")
    submit = folder / "work folder's"
    submit.mkdir(exist_ok=True)
    with running(["bash", str(script)], {**os.environ, "OMP_NUM_THREADS": "1"}, submit) as started:
        yield started


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_local_job_runs_for_real(tmp_path: Path, launcher: str) -> None:
    """Two ranks under the real launcher, a Japanese name, a folder with a blank and a quote."""
    with real_job(tmp_path, launcher, SPEAK, "a b", "学習", ":") as started:
        assert started.end() == 0, started.log()
        for rank in range(2):
            (log,) = started.jobdir.glob(f"*_{rank}_log.out")
            assert log.read_text() == f"rank {rank} of 2 a b 学習 :\n"
        assert "rank 0 of 2" in started.log()
        assert "rank 1 of 2" not in started.log()
        assert record(started)["code"] == 0


def test_a_script_can_be_run_again(world: World) -> None:
    """Two runs of one script have folders of their own."""
    case = world.plan("local", name="学習 1")
    assert [world.run(case).code for _ in range(2)] == [0, 0]
    assert len([*(world.submit_dir / "outputs" / "学習 1").iterdir()]) == 2


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_code_of_a_rank_is_the_jobs(tmp_path: Path, launcher: str) -> None:
    """torchrun turns every code into 1; the job ends with that of the rank."""
    with real_job(tmp_path, launcher, "import sys; sys.exit(7)") as started:
        assert started.end() == 7, started.log()
        assert record(started)["code"] == 7
        assert "7 rank " in (started.jobdir / "abort").read_text()


def ranks(job: Running) -> list[int]:
    """Wait until both ranks of a real job have spoken, and return their pids."""
    logs = [job.jobdir / f"{job.script.pid}_{rank}_log.out" for rank in range(2)]
    job.wait_for(lambda: all(log.exists() and log.stat().st_size for log in logs), "words of both ranks")
    return [pid for pid, line in job.processes().items() if "sleep(600)" in line and "-c import" in line]


def test_script_that_is_killed_and_not_reaped_takes_deaf_ranks_along(tmp_path: Path) -> None:
    """Nobody asks how the killed script ended, so its pid lives on; its ranks ignore TERM: they are gone soon."""
    with real_job(tmp_path, "torchrun", DEAF) as started:
        assert len(ranks(started)) == 2
        os.kill(started.script.pid, signal.SIGKILL)
        started.wait_for(lambda: not started.processes(), "end of all")
        assert started.script.returncode is None, "it was not reaped"
        assert TORCHRUN_KILLS not in started.log()


def test_killed_rank_ends_deaf_ones_and_is_reported(tmp_path: Path) -> None:
    """torchrun gives ranks that ignore TERM 30 s; the job does not, and torchrun still says that one was killed."""
    with real_job(tmp_path, "torchrun", DEAF) as started:
        os.kill(max(ranks(started)), signal.SIGKILL)
        assert started.all_gone() == 137
        assert "exitcode  : -9" in started.log()
        assert TORCHRUN_KILLS not in started.log()


@pytest.mark.parametrize("victim", ["rank", "launcher"])
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_kill_of_one_process_ends_all(tmp_path: Path, launcher: str, victim: str) -> None:
    """SIGKILL to one rank, or to the real launcher: every process of the job is gone soon, it counts as failed."""
    with real_job(tmp_path, launcher, SLEEP, "victim") as started:
        pids = ranks(started)
        if victim == "launcher":
            started.kill("mpirun -np 2" if launcher == "mpirun" else "torch.distributed.run")
        else:
            os.kill(max(pids), signal.SIGKILL)
        assert started.all_gone() != 0
        assert record(started)["code"] not in (0, None)


COMMON = Path(__file__).parents[3] / "templates" / "parts" / "common.sh"
SLOWLY = 'slowly() { echo "$1" "$(sleep 0.7 && echo heeded)"; [[ $1 != TERM ]] || pass_on TERM; }'


@contextmanager
def waiting(folder: Path, command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script that waits for a child as jobs do, has ``command`` heed signals, and tells the code."""
    lines = [
        f"builtin source {shlex.quote(str(COMMON))}",
        SLOWLY,
        "sleep 100 >/dev/null &",  # a second child, or the wait would end for want of children
        "signalled=''",
        "for name in TERM USR1 USR2; do trap \"signalled+='$name '\" $name; done",
        "sleep 100 & child=$!",
        "echo ready",
        f"await $child {command}",
        "echo $code",
    ]
    (folder / "wait.sh").write_text("\n".join(lines))
    words = ["bash", str(folder / "wait.sh")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as script:
        try:
            assert script.stdout is not None
            assert script.stdout.readline() == "ready\n"
            yield script
        finally:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)


def test_child_that_ends_in_the_moment_of_a_signal_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """Launchers end groups of processes at once; bash forgets one child of ten that dies while it takes a signal."""
    for _ in range(100):
        with waiting(tmp_path, "pass_on") as script:
            os.killpg(script.pid, signal.SIGTERM)
            assert script.communicate(timeout=90)[0] == "143\n"


def test_what_is_done_for_a_signal_is_done_to_its_end(tmp_path: Path) -> None:
    """A timed read that a trap interrupts cuts it off when the time is over, and bash then heeds no signal any more."""
    with waiting(tmp_path, "slowly") as script:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            os.kill(script.pid, number)
            assert script.stdout is not None
            assert script.stdout.readline() == f"{number.name.removeprefix('SIG')} heeded\n"
        assert script.communicate(timeout=90)[0] == "143\n"
