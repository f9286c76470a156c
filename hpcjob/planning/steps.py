"""The work of a job as steps: argv, launcher and Python of each."""

from __future__ import annotations

from hpcjob.arrays import Array
from hpcjob.documents.document import leaves
from hpcjob.documents.writing import one_line
from hpcjob.elements import in_yaml
from hpcjob.errors import InputError
from hpcjob.job import JobFile, LauncherName, Python, Step, Train
from hpcjob.launchers.refusals import check_launcher, check_pyxis
from hpcjob.plan import PlannedStep
from hpcjob.profile import ClusterProfile

_WORKS = ("train", "command", "steps")


def planned_steps(
    job: JobFile, profile: ClusterProfile, interpreter: str, array: Array | None
) -> tuple[PlannedStep, ...]:
    """Return the steps of ``job``; a job of one command or training run is one step.

    Args:
        interpreter: absolute path of the Python used where the job names none.

    Raises:
        InputError: the work is not given, or twice, or a launcher cannot work on this cluster.
    """
    works = [key for key in _WORKS if getattr(job, key)]
    if len(works) != 1:
        found = " and ".join(works) or "none of them"
        raise InputError(
            f"{', '.join(_WORKS)}: a job has one of these, this one has {found}",
            hint="write one, for example command: [python, train.py]",
        )
    if not job.steps:
        only = Step(name="train" if job.train else "command", command=job.command, train=job.train)
        return (_planned(only, job, profile, interpreter, array),)
    for number, step in enumerate(job.steps):
        if (step.command is None) == (step.train is None):
            raise InputError(
                f"steps[{number}]: step {step.name!r} needs one of `command` and `train`", hint="give exactly one"
            )
    return tuple(_planned(step, job, profile, interpreter, array) for step in job.steps)


def _planned(step: Step, job: JobFile, profile: ClusterProfile, interpreter: str, array: Array | None) -> PlannedStep:
    launcher = step.launcher or _default_launcher(step, job, profile)
    python = step.python or job.python or Python(executable=interpreter)
    _check_python(python, "steps.python" if step.python else "python")
    check_launcher(launcher, job, profile)
    check_pyxis(launcher, python, job, profile)
    return PlannedStep(
        name=step.name,
        argv=_train_argv(step.train, array) if step.train else tuple(step.command or ()),
        launcher=launcher,
        env=step.env,
        python=python,
        is_train=step.train is not None,
    )


def _check_python(python: Python, key: str) -> None:
    """Refuse a Python that is given in two ways, of which the script would take one, or in none.

    Raises:
        InputError: naming the ways.
    """
    ways = Python.__struct_fields__
    given = [way for way in ways if getattr(python, way) is not None]
    if len(given) != 1:
        raise InputError(
            f"{key}: one of {', '.join(ways)} is the Python, this one has {' and '.join(given) or 'none of them'}",
            hint="give exactly one",
        )


def _default_launcher(step: Step, job: JobFile, profile: ClusterProfile) -> LauncherName:
    """Return how a step that does not say is started: a command among several steps once."""
    once = job.kind != "train" or (bool(job.steps) and step.train is None)
    return "none" if once else job.launcher or profile.launcher.default


def _train_argv(train: Train, array: Array | None) -> tuple[str, ...]:
    argv = ["python", "-m", "neoxlite", "train"]
    if train.conf_dir:
        argv += ["-d", train.conf_dir]
    for key, value in leaves(train.set):
        argv += ["--set", f"{key}={in_yaml(value, array, f'train.set.{key}') or one_line(value)}"]
    return (*argv, "--", *train.configs)
