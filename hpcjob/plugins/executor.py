"""submitit's Executor: a function becomes a pickle and a plan; script, submission and record are hpcjob's."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from submitit.core import core, utils

from hpcjob.errors import HpcjobError, InputError
from hpcjob.job import JobFile, LauncherName, Python
from hpcjob.plugins.job import FunctionJob, HpcjobJob
from hpcjob.plugins.parameters import STDERR, PrefixedNames, check_name, names_of_keys, to_job, without_memory
from hpcjob.plugins.words import in_parameters, with_parameters
from hpcjob.profile import SchedulerName
from hpcjob.schedulers.base import UnclearSubmitError
from hpcjob.schedulers.registry import get_scheduler
from hpcjob.tracking.submission import UnrecordedError

if TYPE_CHECKING:
    from hpcjob.plan import Plan
    from hpcjob.profile import ClusterProfile

_PAUSE_S = 0.2  # between two submissions, as submitit's own


class FunctionExecutor(core.Executor):
    """Submits functions by a cluster profile.

    Args:
        folder: for pickles, results and logs, as submitit names them; on a file system that the nodes share.
        max_num_timeout: how often a job that ran out of time, and whose callable has ``checkpoint``, goes on; 0: never.
        max_pickle_size_gb: most that the pickles of one submission may hold, in GiB.
        parameters: as `update_parameters` takes them: submitit's shared ones, and those of `hpcjob.plugins.parameters`.

    Attributes:
        scheduler: the only scheduler whose profiles are taken; None: any.

    Raises:
        InputError: a value is of the wrong kind, or below 0.
    """

    job_class: type[FunctionJob[Any]]
    scheduler: ClassVar[SchedulerName | None] = None

    def __init__(
        self, folder: Path | str, max_num_timeout: int = 3, max_pickle_size_gb: float = 1.0, **parameters: Any
    ) -> None:
        super().__init__(folder)
        _check_count("max_num_timeout", max_num_timeout)
        self.max_num_timeout = max_num_timeout
        self.max_pickle_size_gb = max_pickle_size_gb
        self._submitted_at_s = float("-inf")
        self._internal_update_parameters(**parameters)

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return PrefixedNames.of(cls.name())  # type: ignore[return-value] # submitit asks `in` and iterates

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Update parameters. Raises InputError for an unknown name, or a value of the wrong kind."""
        for name in kwargs:
            check_name(self.name(), name)
        to_job(self.name(), {**self.parameters, **kwargs}, command=["true"])
        super()._internal_update_parameters(**kwargs)

    def profile(self) -> ClusterProfile:
        """Return the profile to submit by. Raises InputError if there is none, or it is of another scheduler."""
        from hpcjob.plugins.profiles import profile_of

        bare = self.bare(self.parameters.get("gpus_per_node") or 0)
        if bare and self._account([bare["name"]]) is None:
            bare = {**bare, "scheduler": {**bare["scheduler"], "account": "none"}}  # none is missed
        return profile_of(self.parameters.get("profile"), self.scheduler, bare, self.name())

    @classmethod
    def bare(cls, gpus: int) -> Mapping[str, Any]:
        """Return the keys of a profile where the user has none, for nodes of so many GPUs; empty: one is needed."""
        return {}

    def _account(self, profiles: Sequence[str]) -> str | None:
        """Return the account that pays on a profile of these names."""
        from hpcjob.loading.settings import load_settings, usual_account

        given: str | None = self.parameters.get("account")
        return given or usual_account(load_settings(), profiles)[0]

    def plan(self, count: int = 1, pickles: str = "PICKLES") -> Plan:
        """Return what a job of ``count`` functions would be: more than one are an array.

        Args:
            pickles: the name under which they wait in the folder.

        Raises:
            InputError: it does not fit the cluster.
        """
        profile = self.profile()
        with self._in_parameters():
            return self._plan(profile, count, pickles)

    def _in_parameters(self) -> contextlib.AbstractContextManager[None]:
        """What is refused inside is told by the names of parameters, not by the keys that they became."""
        return in_parameters(names_of_keys(self.name(), self.parameters))

    def _plan(self, profile: ClusterProfile, count: int, pickles: str) -> Plan:
        from hpcjob.planning.make import make_plan
        from hpcjob.tracking.dependencies import found

        command = ["python", "-u", "-m", "hpcjob.plugins.task", str(self.folder), pickles]
        command += ["--merge"] if self.parameters.get(STDERR) else []
        asked = {**self.parameters, **({"array_limit": None} if count == 1 else {})}
        job = to_job(self.name(), asked, command=command, **({"array": f"0-{count - 1}"} if count > 1 else {}))
        job = without_memory(_completed(job, profile, self.name()), profile.scheduler.type)
        after, notes = found(job, profile, ask=True) if job.after is not None else ([], [])
        return make_plan(
            job,
            profile,
            name=job.name or "submitit",
            interpreter=sys.executable,
            account=self._account(profile.names),
            after=after,
            notes=notes,
        )

    def _internal_process_submissions(
        self, delayed_submissions: Sequence[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        jobs: list[FunctionJob[Any]] = []
        try:
            for part in _parts(delayed_submissions, self.profile().limits.array):
                jobs += self._submit(part)
        except HpcjobError as error:
            if jobs:
                ids = dict.fromkeys(job.record.element_of or job.record.id for job in jobs)
                error.message += f"; submitted before this: {' '.join(ids)}"
            raise
        return [*jobs]

    def _submit(self, functions: Sequence[utils.DelayedSubmission]) -> Iterator[FunctionJob[Any]]:
        """Submit functions as one job or array, once, and yield the job of each."""
        from hpcjob.plugins.submit import submit_plan

        pickles = uuid.uuid4().hex
        plan = self.plan(len(functions), pickles)
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        time.sleep(max(0.0, self._submitted_at_s + _PAUSE_S - time.monotonic()))
        for note in plan.notes:
            warnings.warn(with_parameters(note, names_of_keys(self.name(), self.parameters)))
        began = time.time()
        with self._pickled(functions, plan, folder, pickles) as paths, self._in_parameters():
            record = submit_plan(plan, folder, Path.cwd())
        self._submitted_at_s = time.monotonic()
        parts = [record] if plan.array is None else [record.element(index) for index in plan.array.indices]
        for part, path in zip(parts, paths, strict=True):
            job = self.job_class(self.folder, part.id, range(plan.world_size), record=part)
            job.take_place(path, began)
            yield job

    @contextlib.contextmanager
    def _pickled(
        self, functions: Sequence[utils.DelayedSubmission], plan: Plan, folder: Path, name: str
    ) -> Iterator[list[Path]]:
        """Write the pickles, and remove them if the job is refused; one that may be in the queue will want them.

        Raises:
            InputError: they hold more than the executor's limit.
        """
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}_{index}.pkl" for index in range(len(functions))]
        try:
            self._pickle(functions, plan, paths)
            yield paths
        except (UnclearSubmitError, UnrecordedError):
            raise
        except Exception:
            for path in paths:
                path.unlink(missing_ok=True)
            raise

    def _pickle(self, functions: Sequence[utils.DelayedSubmission], plan: Plan, paths: Sequence[Path]) -> None:
        room = self.max_pickle_size_gb * 2**30
        for function, path in zip(functions, paths, strict=True):
            function.set_timeout(plan.walltime_s / 60, self.max_num_timeout)  # type: ignore[arg-type] # no int is needed
            function.dump(path)
            room -= path.stat().st_size
            if room < 0:
                raise InputError(
                    f"the pickles of {len(functions)} functions are more than {self.max_pickle_size_gb:g} GiB",
                    hint="give paths of data, not the data; or raise max_pickle_size_gb of the executor",
                )

    @classmethod
    def affinity(cls) -> int:
        """Return 0: there, and taken when asked for."""
        return 0


class HpcjobExecutor(FunctionExecutor):
    """``cluster="hpcjob"``: the scheduler is that of the profile."""

    job_class = HpcjobJob


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{name}: {value!r} is not a number of times", hint="give a whole number, 0 or above")


def _completed(job: JobFile, profile: ClusterProfile, prefix: str) -> JobFile:
    """Return ``job`` with the launcher of its tasks, its interpreter, its variables, and that it may start anew."""
    tasks = job.nodes * (job.procs_per_node or 1)
    launcher: LauncherName = "none" if tasks == 1 else "srun" if profile.scheduler.type == "slurm" else "mpirun"
    directive = get_scheduler(profile).restartable
    variables = {"SUBMITIT_EXECUTOR": prefix}
    if path := os.environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] = path  # most schedulers hand no variables down, and pickles name modules
    return msgspec.structs.replace(
        job,
        profile=profile.name,
        launcher=job.launcher or launcher,
        queue=job.queue or (profile.scheduler.cpu_resource if not job.gpus_per_node else None),
        python=job.python or Python(executable=sys.executable),
        env={**variables, **job.env},
        extra=[*([directive] if directive else []), *job.extra],
    )


def _parts(functions: Sequence[utils.DelayedSubmission], most: int | None) -> Iterator[list[utils.DelayedSubmission]]:
    """Split into arrays as large as the site takes, ``most``; 0: it takes none."""
    from hpcjob.arrays import MOST

    waiting = iter(functions)
    while part := list(itertools.islice(waiting, 1 if most == 0 else most or MOST)):
        yield part
