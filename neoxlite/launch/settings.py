"""What is to be launched, and where: from the configuration, the command line and the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neoxlite.common.paths import exists, is_link
from neoxlite.config.keys import Support, key_table
from neoxlite.config.old_keys import modernise
from neoxlite.config.overrides import apply_overrides
from neoxlite.config.reader import read_files
from neoxlite.config.values import typed
from neoxlite.data.system_errors import reading
from neoxlite.errors import ConfigError
from neoxlite.launch.allocation import several_nodes
from neoxlite.launch.hosts import Hosts, choose_hosts, filtered, is_this_machine, read_hostfile, this_machine
from neoxlite.training.first_voice import named_rank, rank_0_speaks_first

JOB_HOSTFILE: Final = Path("/job/hostfile")  # where DeepSpeed looks for one that nobody named
_LAUNCHERS: Final = {"pdsh": "pdsh", "openmpi": "mpirun"}
_INSTEAD: Final = {
    "slurm": "in a Slurm job: srun python -m neoxlite train ...; or let hpcjob write and submit the job",
    "mvapich": "use launcher: openmpi, or pdsh",
}
# Of torchrun, Open MPI, and MPICH and Intel MPI: a rank, the world size, and that of a process which is no rank.
_RANKS: Final = (
    ("RANK", "WORLD_SIZE", "1"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", None),
    ("PMI_RANK", "PMI_SIZE", "1"),
)
# As DeepSpeed sends them to other hosts (launcher/runner.py at 65d9f992), and what else changes how a rank runs.
_PREFIXES: Final = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL", "CUDA_", "OMP_", "GLOO_", "TORCH_", "FI_")
_OF_THIS_MACHINE: Final = frozenset({"CUDA_VISIBLE_DEVICES", "NCCL_DEBUG_FILE"})


@dataclass(frozen=True)
class Request:
    """What a user asks to be launched.

    Attributes:
        command: of neoxlite: ``train`` or ``evaluate``.
        configs, conf_dir: configuration files, as for that command.
        assignments: its ``--set KEY=VALUE``.
        overrides: the same, parsed.
        options: its other options, such as ``("--iteration", "100")``.
        hostfile: in place of that of the configuration.
    """

    command: str
    configs: Sequence[str]
    conf_dir: str | None = None
    assignments: Sequence[str] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    hostfile: str | None = None

    def argv(self) -> tuple[str, ...]:
        """Return the command of one rank."""
        argv = ["python", "-m", "neoxlite", self.command]
        if self.command == "train":
            argv.append("--launched")  # what is about the ranks is used here: no warning that training does not
        if self.conf_dir is not None:
            argv += ["-d", self.conf_dir]
        for assignment in self.assignments:
            argv += ["--set", assignment]
        return (*argv, *self.options, "--", *self.configs)


@dataclass(frozen=True)
class Settings:
    """How a request is launched.

    Attributes:
        hosts: where.
        hostfile: that the hosts come from; None: this machine.
        launcher: of `hpcjob.launchers`.
        check_hosts: whether to look first if all hosts can be reached.
        master_addr, master_port: as configured; None: chosen at the start.
        env: variables that every rank gets.
        note: what the user should know about the choice; None: nothing.
    """

    hosts: Hosts
    hostfile: Path | None
    launcher: str
    check_hosts: bool
    master_addr: str | None
    master_port: int | None
    env: Mapping[str, str]
    note: str | None = None

    def __str__(self) -> str:
        source = f"hostfile {self.hostfile}: " if self.hostfile else ""
        return f"{source}{self.hosts}, by {self.launcher}"


def launch_settings(request: Request, environ: Mapping[str, str]) -> Settings:
    """Decide where and how to start a request; the files are read, nothing is started.

    Raises:
        ConfigError: a file, a key or the hostfile is wrong, or this process is a rank of a run already.
    """
    _refuse_ranks(environ)
    keys = _keys(request)
    hostfile, note = _hostfile(request.hostfile, keys["hostfile"], environ)
    if hostfile is None:
        hosts = _this_machine(keys, note, environ)
    else:
        slots = filtered(read_hostfile(hostfile), keys["include"], keys["exclude"])
        hosts = choose_hosts(slots, num_nodes=keys["num_nodes"], num_gpus=keys["num_gpus"])
        if len(hosts.names) == 1 and not is_this_machine(hosts.names[0]):
            raise ConfigError(
                f"hostfile {hostfile}: its one host {hosts.names[0]} is not this machine",
                hint="log in there, or omit the hostfile to run here",
            )
    launcher = _launcher(keys["launcher"]) if len(hosts.names) > 1 else "torchrun"
    return Settings(
        hosts,
        hostfile,
        launcher,
        launcher == "pdsh" and not keys["no_ssh_check"],
        keys["master_addr"] or environ.get("MASTER_ADDR") or None,
        keys["master_port"],
        _environment(hosts, environ),
        note,
    )


def _refuse_ranks(environ: Mapping[str, str]) -> None:
    """Raise ConfigError in each process of a launcher, of which one is heard: as many runs would be started."""
    for rank, size, alone in _RANKS:
        if rank in environ and environ.get(size, "1") != alone:
            with rank_0_speaks_first(named_rank(environ)):
                raise ConfigError(
                    f"this process is one rank of a run already ({rank}={environ[rank]}): a launcher started it",
                    hint="start `neoxlite train` in its place, or launch once, outside",
                )


def _this_machine(keys: Mapping[str, Any], note: str | None, environ: Mapping[str, str]) -> Hosts:
    """Return this machine's processes. Raises ConfigError: a key asks for what only a hostfile gives."""
    asked = [f"{key}: {keys[key]}" for key in ("include", "exclude") if keys[key]]
    if keys["num_nodes"] > 1:
        asked.append(f"num_nodes: {keys['num_nodes']}")
    if asked:
        because = f"; {note}" if note else ""
        raise ConfigError(f"{asked[0]} needs a hostfile{because}", hint="give --hostfile FILE")
    return this_machine(keys["num_gpus"], environ)


def _keys(request: Request) -> dict[str, Any]:
    """Return the keys of launching as the configuration gives them, typed; None where it does not."""
    conf_dir = Path(request.conf_dir) if request.conf_dir is not None else None
    entries, _ = modernise(read_files(request.configs, conf_dir).entries)
    entries = apply_overrides(entries, request.overrides)
    values: dict[str, Any] = {}
    for name, key in key_table().items():
        if key.support is Support.LAUNCH:
            entry = entries.get(name)
            values[name] = typed(key, entry.value, entry.where) if entry is not None else None
    values["num_nodes"] = values["num_nodes"] or -1
    for name, most in (("num_gpus", 1024), ("master_port", 65_535)):
        if values[name] is not None and not 1 <= values[name] <= most:
            raise ConfigError(
                f"{entries[name].where}: {name} is {values[name]}", hint=f"give a number from 1 to {most:,}"
            )
    return values


def _hostfile(option: str | None, key: str | None, environ: Mapping[str, str]) -> tuple[Path | None, str | None]:
    """Return the hostfile to use, and what to say about one that is not there.

    It is that of the command line, else of the key, else DLTS_HOSTFILE's, else /job/hostfile. One that does not exist
    means this machine alone, as for DeepSpeed: GPT-NeoX's own 125M.yml names one. Not so one of the command line, which
    somebody has just written, nor in a job of several nodes, of which the run would leave all but one idle. A job of
    several nodes without any hostfile gets a note: it may start a run of its own on each node.

    Raises:
        ConfigError: it does not exist, and the job around this process has several nodes.
    """
    if option:
        return Path(option), None
    named = key or environ.get("DLTS_HOSTFILE")
    several = several_nodes(environ)
    if not named:
        if JOB_HOSTFILE.is_file():
            return JOB_HOSTFILE, None
        return None, f"{several}, but no hostfile is given: this machine alone" if several else None
    path = Path(named)
    if exists(path) or is_link(path):
        return path, None
    gone = f"hostfile {path} does not exist"
    if several:
        raise ConfigError(
            f"{gone}, and this job has several nodes: {several}",
            hint="write it, a line for each node such as: node1 slots=8; or let hpcjob start the ranks of a job",
        )
    return None, f"{gone}: this machine alone"


def _launcher(name: str | None) -> str:
    name = (name or "pdsh").lower()
    if name not in _LAUNCHERS:
        raise ConfigError(f"launcher: {name} is not started by neoxlite launch", hint=_INSTEAD.get(name, "use pdsh"))
    return _LAUNCHERS[name]


def _environment(hosts: Hosts, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the ranks on all hosts get of this environment, and of the file .deepspeed_env."""
    env = {
        name: value
        for name, value in environ.items()
        if name.startswith(_PREFIXES) and name not in _OF_THIS_MACHINE and name.isidentifier()
    }
    env |= _deepspeed_env(environ)
    if hosts.gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, hosts.gpus))
    return env


def _deepspeed_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the lines NAME=VALUE of .deepspeed_env (or what DS_ENV_FILE names), here or in the home folder."""
    name = environ.get("DS_ENV_FILE") or ".deepspeed_env"
    found = next((path for path in (Path(name), Path(environ.get("HOME", "")) / name) if path.is_file()), None)
    if found is None:
        return {}
    env = {}
    with reading(found):
        lines = found.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.strip().partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"{found}:{number}: {line[:60]!r} is not a variable", hint="write it as: NAME=VALUE")
        env[key] = value
    return env
