"""The job file: what to run, and what it asks of a cluster. Flat keys; options of the command line override them."""

# No `from __future__ import annotations` here: msgspec would have to evaluate each text at every start.
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=100_000)]
Text = Annotated[str, Meta(min_length=1)]
Argv = Annotated[list[str], Meta(min_length=1)]
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ENV_NAME_HINT = "use letters, digits and _, no digit first"
EnvName = Annotated[str, Meta(pattern=rf"^{ENV_NAME.pattern}\Z")]
Env = dict[EnvName, str]
JobNames = str | int | list[str | int]
Scalar = str | int | float | bool
Ulimit = Annotated[int, Meta(ge=1)] | Literal["unlimited"]
LauncherName = Literal["mpirun", "pdsh", "srun", "torchrun", "none"]


class Container(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An Apptainer (Singularity) image in which the ranks run.

    Attributes:
        image: its file, or an address such as ``docker://...`` that the nodes can reach.
        binds: folders seen inside beside the submit folder and the job folder, ``SOURCE`` or ``SOURCE:TARGET``.
    """

    image: Text
    binds: list[Text] = []


class Python(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The Python environment of a job: activated after the modules, checked before the launch.

    Attributes:
        venv: path of a virtual environment, relative to the submit folder or absolute.
        conda: name or path of a conda environment; ``conda`` must be on PATH after the modules.
        executable: path of an interpreter, used as it is.
        container: the interpreter and all commands run in an image; apptainer or singularity must be on PATH.
    """

    venv: Text | None = None
    conda: Text | None = None
    executable: Text | None = None
    container: Container | None = None


class Train(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A neoxlite training run.

    Attributes:
        configs: GPT-NeoX YAML files, in order; a name that is not here is looked for among those of neoxlite.
        conf_dir: folder of the configuration files, as ``neoxlite train -d``.
        set: overrides, key -> value, as ``neoxlite train --set``; a mapping sets the keys in it, so that
            ``optimizer.params.lr`` and ``{optimizer: {params: {lr: ...}}}`` are the same.
    """

    configs: Argv
    conf_dir: Text | None = None
    set: dict[str, Any] = {}


class Step(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One of several steps of a job, run in order; the first that fails ends the job.

    Attributes:
        name: shown in the log and in the exit record.
        command: argv, started once on the first node unless ``launcher`` says otherwise.
        train: a training run instead of a command, started on all ranks.
        launcher: launcher of this step; ``none`` starts it once.
        env: variables of this step alone.
        python: environment of this step alone.
    """

    name: Text
    command: Argv | None = None
    train: Train | None = None
    launcher: LauncherName | None = None
    env: Env = {}
    python: Python | None = None


class ArrayLines(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An array with one element for each line of a file.

    Attributes:
        lines: path of the file, read when the job is submitted; blank lines do not count.
    """

    lines: Text


class After(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Jobs that have to end first: ids, names or ``latest``.

    Attributes:
        ok: they have to end with code 0.
        any: they have to end, however.
        notok: they have to end with another code, or to be ended.
    """

    ok: JobNames = []
    any: JobNames = []
    notok: JobNames = []


class Param(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A value that a submission may or must give, used as ``{params.NAME}``.

    Attributes:
        type: what the value has to be; ``path``: a file or folder that is there at submission.
        default: value where none is given; without one the job is refused until one is.
        value: the value given (``--set params.NAME=VALUE``).
        choices: the values allowed.
        help: said where the value is missing or refused.
    """

    type: Literal["text", "int", "float", "bool", "path"] = "text"
    default: Scalar | None = None
    value: Scalar | None = None
    choices: list[Scalar] = []
    help: Text | None = None


class Ulimits(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Limits of the processes, raised as far as the node allows; a lower one than asked ends the job before its launch.

    Attributes:
        nofile: open files.
        memlock: locked memory in KiB, as ``ulimit -l``.
        stack: stack in KiB, as ``ulimit -s``.
    """

    nofile: Ulimit | None = None
    memlock: Ulimit | None = None
    stack: Ulimit | None = None


class JobFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What to run.

    Attributes:
        schema: version of this format.
        name: name of the job; default: the job file's.
        profile: cluster profile.
        nodes: number of nodes.
        gpus_per_node: GPUs of each node; default: all that the profile's node has.
        procs_per_node: ranks of each node; default: one a GPU, on a node without GPUs one.
        cpus_per_gpu: CPU cores of each rank.
        memory: memory of each node ("480G").
        walltime: limit ("12:00:00"); default: the profile's.
        queue: queue, partition, resource type or resource group; ``auto``: the smallest of the profile's that takes it.
        account: group account that pays.
        launcher: how the ranks are started; default: the profile's.
        kind: ``train`` uses the profile's GPU nodes; ``cpu``, ``transfer`` and ``setup`` start one process.
        python: Python environment; default: the interpreter that runs hpcjob.
        modules: modules to load; default: the profile's. An empty list loads none.
        module_use: folders added to the module path before loading.
        source: files sourced after the modules.
        env: variables for all ranks; numbers keep their spelling (``1.10`` stays ``1.10``).
        extra: raw directives, without the scheduler's prefix.
        exclude: nodes not to run on (Slurm).
        nodelist: nodes to run on (Slurm).
        constraint: features that a node must have (Slurm).
        qos: quality of service (Slurm).
        exclusive: whether to share no node with other jobs (Slurm, PBS, Grid Engine).
        reservation: name or number of a reservation (Slurm, PBS, Grid Engine).
        mail: when to send a mail; ``mail_to`` says to whom.
        mail_to: address; default: ``mail_to`` of the user's configuration.
        array: one job for each index of ``0-9``, ``0-8:4``, ``1,3,7`` (``0-99%4``: four at once), each item of a list,
            or each line of a file (``{lines: FILE}``). ``{array.index}`` and ``{array.value}`` stand for the element's
            index and text in the work and in variables; HPCJOB_ARRAY_INDEX and HPCJOB_ARRAY_VALUE hold them.
        array_limit: how many elements may run at once.
        after: jobs that have to end well first; ``{ok: ..., any: ..., notok: ...}`` for other conditions.
        params: values that a submission gives, by name, used as ``{params.NAME}``; a plain value is a default.
        sweep: one job for each combination of the values of a mapping, or for each mapping of a list. A key is the name
            of a parameter, or a key of the job such as ``train.set.seed``.
        limits: limits of the processes (``ulimit``).
        bind: ``numa``: each rank runs on the CPUs and the memory of its GPU's side (``numactl``); ``cores``: on cores
            of its own (``taskset``); ``none``: where the system puts it.
        stage_in: files and folders copied to the node's scratch before the work, whose folder is HPCJOB_SCRATCH.
        stage_out: names in the scratch folder copied into the job folder at every end.
        stop_before_s: seconds before the walltime at which the trainer is asked to save and end; at most a quarter of
            the walltime, 0: never.
        train: the work, as a training run.
        command: the work, as argv started on all ranks (on one for kinds other than ``train``).
        steps: the work, as several steps.
    """

    # What the schedulers, submitit and people call a key, for who writes that instead.
    OTHER_WORDS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("partition", "resource", "rscgrp"), "queue"),
        **dict.fromkeys(("time", "timeout", "timeout_min", "time_limit"), "walltime"),
        **dict.fromkeys(("group", "project"), "account"),
        **dict.fromkeys(("gres", "num_gpus"), "gpus_per_node"),
        **dict.fromkeys(("ntasks_per_node", "tasks_per_node", "ntasks", "nproc_per_node"), "procs_per_node"),
        **dict.fromkeys(("cpus_per_task", "cpus"), "cpus_per_gpu"),
        **dict.fromkeys(("cmd", "run", "script", "args"), "command"),
        **dict.fromkeys(("venv", "conda", "container", "image", "interpreter"), "python"),
        **dict.fromkeys(("dependency", "depends_on"), "after"),
        **dict.fromkeys(("num_nodes", "nnodes"), "nodes"),
        "job_name": "name",
        "mail_type": "mail",
        "mail_user": "mail_to",
        "overrides": "train.set",
    }

    schema: Literal[1] = 1
    name: Text | None = None
    profile: Text | None = None
    nodes: Count = 1
    gpus_per_node: Annotated[int, Meta(ge=0, le=1024)] | None = None
    procs_per_node: Count | None = None
    cpus_per_gpu: Count | None = None
    memory: str | int | float | None = None
    walltime: str | int | None = None
    queue: Text | None = None
    account: Text | None = None
    launcher: LauncherName | None = None
    kind: Literal["train", "cpu", "transfer", "setup"] = "train"
    python: Python | None = None
    modules: list[Text] | None = None
    module_use: list[Text] = []
    source: list[Text] = []
    env: Env = {}
    extra: list[Text] = []
    exclude: list[Text] = []
    nodelist: list[Text] = []
    constraint: Text | None = None
    qos: Text | None = None
    exclusive: bool = False
    reservation: Text | None = None
    mail: list[Literal["begin", "end", "fail"]] = []
    mail_to: Text | None = None
    array: str | int | list[str | int | float] | ArrayLines | None = None
    array_limit: Count | None = None
    after: str | int | list[str | int] | After | None = None
    params: dict[EnvName, Param | Scalar] = {}
    sweep: dict[Text, list[Scalar]] | list[dict[Text, Scalar]] | None = None
    limits: Ulimits | None = None
    bind: Literal["none", "cores", "numa"] = "none"
    stage_in: list[Text] = []
    stage_out: list[Text] = []
    stop_before_s: Annotated[int, Meta(ge=0, le=86_400)] = 300
    train: Train | None = None
    command: Argv | None = None
    steps: list[Step] | None = None
