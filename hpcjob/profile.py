"""The cluster profile: where a job runs. Data only; one YAML file per cluster."""

# No `from __future__ import annotations` here: msgspec would have to evaluate each text at every start.
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hpcjob.job import Count, Env, EnvName, LauncherName, Text

Positive = Annotated[float, Meta(gt=0, le=1e9)]
Few = Annotated[int, Meta(ge=0, le=1024)]
Version = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)*\Z")]
SchedulerName = Literal["slurm", "pbs", "gridengine", "pjm", "local"]


class Scheduler(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The batch system and its local dialect.

    Attributes:
        type: which scheduler.
        account: how the group account is given: ``-P`` or ``group_list`` (PBS), ``-g`` (PJM), ``-g-cli`` (Grid Engine
            where the option is refused inside the script), ``--account`` (Slurm), ``none``.
        account_required: whether a submission without an account is refused.
        resource: Grid Engine: the complex that counts whole nodes (``rt_AF``, ``node_f``); PBS, PJM: default queue or
            resource group; Slurm: default partition. A job's ``queue`` replaces it. `ClusterProfile.queues` says more
            of each.
        cpu_resource: the same for jobs of kind ``cpu``, ``transfer`` and ``setup``: a queue of nodes without GPUs.
        select: PBS: what follows the node count in ``-l select=N``, such as ``:ngpus=8``; may hold ``{gpus}``,
            ``{procs}`` and ``{cpus}``.
        gpu_request: Slurm: ``gpus-per-node``, ``gres`` or ``none``.
        signal: Slurm: ask for a signal before the walltime (``--signal=B:USR2@s``); others use a timer in the script.
        notify: Grid Engine: ask for SIGUSR2 before a job is killed (``-notify``), so that one that qdel ends can save.
        rerunnable: PBS: whether the scheduler may start the job again by itself.
        extra: raw directives of every job, without the prefix.
        history: whether finished jobs can be queried (sacct, ``qstat -x``, qacct, ``pjstat -H``).
        pyxis: Slurm: whether its srun takes ``--container-image`` (NVIDIA's plug-in pyxis).
    """

    type: SchedulerName
    account: Literal["-P", "group_list", "-g", "-g-cli", "--account", "none"] = "none"
    account_required: bool = False
    resource: Text | None = None
    cpu_resource: Text | None = None
    select: str = ""
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    signal: bool = True
    notify: bool = False
    rerunnable: bool = False
    extra: list[Text] = []
    history: bool = True
    pyxis: bool = False

    @property
    def uses_pyxis(self) -> bool:
        """Whether containers are started by srun here."""
        return self.type == "slurm" and self.pyxis


class Node(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One compute node.

    Attributes:
        gpus: number of GPUs (0: a CPU cluster).
        gpu: model, as people call it.
        gpu_memory_gib: memory of one GPU.
        peak_tflops: dense bf16 peak of one GPU (fp16 where there is no bf16), in 10^12 FLOP/s.
        cores: physical CPU cores.
        memory_gib: host memory available to jobs.
        hcas: number of network adapters for RDMA.
        link_gbps: rate of one adapter, in Gbit/s.
        scratch: variable that names the job's own local folder.
        arch: machine architecture as ``uname -m`` prints it.
    """

    gpus: Few = 0
    gpu: str | None = None
    gpu_memory_gib: Positive | None = None
    peak_tflops: Positive | None = None
    cores: Count | None = None
    memory_gib: Positive | None = None
    hcas: Few = 0
    link_gbps: Positive | None = None
    scratch: EnvName | None = None
    arch: Literal["x86_64", "aarch64"] = "x86_64"


class Modules(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Environment modules.

    Attributes:
        init: file to source so that ``module`` exists in a batch shell; None: no modules here.
        purge: whether to unload everything first.
        use: folders added to the module path.
        load: modules of every job, in order.
    """

    init: Text | None = None
    purge: bool = False
    use: list[Text] = []
    load: list[Text] = []


class Versions(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Versions that the job must find; checked in the job before the launch.

    Attributes:
        cuda: CUDA version, as far as it matters ("11.8", "12.4").
        nccl: NCCL version ("2.16.2").
        nccl_from: ``module``: the NCCL of the modules must be the declared one; ``torch``: the one torch loads must be.
    """

    cuda: Version | None = None
    nccl: Version | None = None
    nccl_from: Literal["module", "torch"] = "torch"


class Launcher(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How ranks are started here.

    Attributes:
        default: launcher of a job that names none.
        mpirun: command of the MPI launcher.
        mpirun_args: options of every mpirun line, such as ``--mca btl_tcp_if_include bond0``.
        srun_args: options of every srun line.
        pdsh_args: options of every pdsh line.
        mpi: whether Open MPI is there (after the modules).
    """

    default: LauncherName = "torchrun"
    mpirun: Text = "mpirun"
    mpirun_args: list[Text] = []
    srun_args: list[Text] = []
    pdsh_args: list[Text] = []
    mpi: bool = True


class Ssh(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Whether the nodes of a job can reach one another by ssh.

    Attributes:
        access: ``none``; ``free``; ``switch``: enabled by ``directive``.
        directive: raw directive that enables it, without the prefix (``-v USE_SSH=1``, ``-l USE_SSH=1``).
        port: port of sshd on the compute nodes.
    """

    access: Literal["none", "free", "switch"] = "none"
    directive: Text | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] = 22


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Limits of the site.

    Attributes:
        nodes: nodes of one job.
        walltime: longest walltime.
        default_walltime: walltime of a job that names none.
        array: elements of one array; 0: the site runs none. Slurm: its MaxArraySize, which the largest index is below.
        node_hours: most that nodes times hours of one job may be.
    """

    node_hours: Positive | None = None
    array: Annotated[int, Meta(ge=0, le=1_000_000_000)] | None = None
    nodes: Count | None = None
    walltime: Text | None = None
    default_walltime: Text = "1:00:00"


class Size(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What one queue allows to jobs of a size.

    Attributes:
        nodes: up to so many nodes.
        walltime: at most so long.
    """

    nodes: Count
    walltime: Text


class Queue(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A queue, partition, resource type or resource group.

    Attributes:
        sizes: its limits, from few nodes to many; empty: those of the profile.
        node_hours: most that nodes times hours of one job may be.
        node: its nodes, where they are not those of the profile.
        auto: whether ``queue: auto`` may choose it.
        source: where the limits are written, and when that was read.
    """

    sizes: list[Size] = []
    node_hours: Positive | None = None
    node: Node | None = None
    auto: bool = True
    source: Text | None = None


class Interactive(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Shells on compute nodes (``hpcjob interactive``).

    Attributes:
        queue: where they run; None: the queue that a job would have.
        sizes: limits, on top of those of the queue.
        node_hours: most that nodes times hours may be.
        command: the command that asks for a shell, where it is not the scheduler's usual one (``salloc``, ``qsub -I``,
            ``qrsh``, ``pjsub --interact``).
        refused: why the site gives none.
    """

    queue: Text | None = None
    sizes: list[Size] = []
    node_hours: Positive | None = None
    command: list[Text] = []
    refused: Text | None = None


class Paths(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Folders that all nodes see, and folders that they do not.

    Attributes:
        not_shared: prefixes under which a job folder is refused, such as ``/tmp``.
    """

    not_shared: list[Text] = []


class ClusterProfile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Where a job runs.

    Attributes:
        schema: version of this format.
        name: name of the profile: that of its file, which counts unless the file is given by its path.
        title: name of the system, for people.
        aliases: other names of this profile.
        extends: profile whose values this one starts from: a name, or a path relative to this file. A node that names
            another ``gpu`` here starts without ``gpu_memory_gib`` and ``peak_tflops``, which were the other one's.
        status: ``tested`` on the system or a real scheduler of its kind, ``documented`` from public sources only,
            ``closed`` when the system is no longer in service.
        scheduler: the batch system.
        node: one compute node; a queue may have others.
        modules: environment modules.
        versions: versions that a job must find.
        launcher: how ranks are started.
        ssh: whether the nodes of a job reach one another by ssh.
        paths: folders that not all nodes see.
        limits: limits of all queues that say nothing else.
        internet: whether compute nodes reach the internet.
        network_interface: interface of the control network (MASTER_ADDR, gloo, NCCL bootstrap); None: by host name.
        env: variables of every job, such as NCCL_* and UCX_*.
        queues: what is known of each queue, by name; ``queue: auto`` chooses among them.
        interactive: shells on compute nodes.
        master_port_base: first of the 20,000 ports from which a job's MASTER_PORT is derived.
    """

    schema: Literal[1] = 1
    name: Text
    title: Text
    aliases: list[Text] = []
    extends: Text | None = None
    status: Literal["tested", "documented", "closed"] = "documented"
    scheduler: Scheduler
    node: Node = Node()
    modules: Modules = Modules()
    versions: Versions = Versions()
    launcher: Launcher = Launcher()
    ssh: Ssh = Ssh()
    internet: bool = False
    network_interface: Text | None = None
    env: Env = {}
    paths: Paths = Paths()
    limits: Limits = Limits()
    queues: dict[Text, Queue] = {}
    interactive: Interactive = Interactive()
    master_port_base: Annotated[int, Meta(ge=1024, le=45_000)] = 20_000

    @property
    def names(self) -> list[str]:
        """Its name, then its aliases."""
        return [self.name, *self.aliases]
