"""The whole test bed: hosts, Slurm and modules in one run folder, ended exactly whatever ends its owner."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster.testbed import cgroups
from tests.cluster.testbed.hosts import Host, Hosts, held_namespaces, wait_for_end
from tests.cluster.testbed.modules import ModuleTree
from tests.cluster.testbed.processes import ProcessId
from tests.cluster.testbed.requirements import SYSTEM_PATH
from tests.cluster.testbed.slurm import Slurm

REPOSITORY = Path(__file__).resolve().parents[3]
BASE = Path("/var/tmp/hpcjob-testbed")  # not in /tmp: that is each host's own
RECORD = "bed.json"


class Testbed:
    """A login host and compute nodes with Slurm on them.

    A context manager: everything ends with the block. Should the owning process be killed, the hosts end by themselves,
    and the folder that is left is removed by the next test bed.
    """

    __test__ = False

    def __init__(
        self,
        name: str | None = None,
        *,
        nodes: int = 2,
        gpus: int = 8,
        has_accounting: bool = True,
        limits_memory: bool = False,
        base: Path = BASE,
    ) -> None:
        """``name`` is that of the run folder under ``base``; a new one if None."""
        base.mkdir(parents=True, exist_ok=True)
        remove_stale(base)
        self.folder = Path(tempfile.mkdtemp(prefix="bed-", dir=base)) if name is None else base / name
        self.folder.mkdir(exist_ok=name is None)
        self.folder.chmod(0o755)
        self.node_count = nodes
        self._owner_read, self._owner_write = os.pipe()
        self._write_record(owner=ProcessId.of(os.getpid()))
        for shared in (self.home, self.work):
            shared.mkdir()
        self.modules = ModuleTree(self.folder / "modules")
        self.hosts = Hosts(self.folder / "hosts", [self.folder, REPOSITORY], user_environment(self.folder))
        options = {"has_accounting": has_accounting, "limits_memory": limits_memory}
        self.slurm = Slurm(self.hosts, self.folder / "slurm", gpus=gpus, **options)

    @property
    def home(self) -> Path:
        """The user's home folder, on all hosts."""
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """An empty folder that all hosts share."""
        return self.folder / "work"

    @property
    def login(self) -> Host:
        """The login host."""
        return self.hosts.login

    @property
    def nodes(self) -> list[Host]:
        """The compute nodes."""
        return self.hosts.nodes

    def up(self) -> None:
        """Bring everything up; if that fails, nothing is left running."""
        try:
            self.hosts.up(self.node_count, self._owner_read)
            self._write_record(owner=ProcessId.of(os.getpid()))
            self.slurm.up()
        except BaseException:
            self.hosts.down()
            raise

    def keep(self) -> None:
        """Let the hosts outlive this process, until ``down`` of :func:`end`."""
        os.write(self._owner_write, b"keep" * len(self.hosts.by_name))
        self._write_record(owner=None)

    def down(self) -> None:
        """End every process and remove the run folder."""
        with held_namespaces(self.hosts.by_name.values()) as namespaces:
            self.hosts.down()
            wait_for_end(namespaces)
        cgroups.remove(self.folder.name)
        for end in (self._owner_read, self._owner_write):
            os.close(end)
        shutil.rmtree(self.folder)

    def __enter__(self) -> Testbed:
        """Bring it up."""
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it down."""
        self.down()

    def _write_record(self, owner: ProcessId | None) -> None:
        """Note who owns the bed and the processes that hold its hosts."""
        hosts = self.hosts.by_name.items() if hasattr(self, "hosts") else ()
        record = {
            "owner": owner and [owner.pid, owner.start_ticks],
            "hosts": {name: [host.holder.pid, host.holder.start_ticks] for name, host in hosts},
        }
        temporary = self.folder / f"{RECORD}.new"
        temporary.write_text(json.dumps(record))
        temporary.replace(self.folder / RECORD)


def user_environment(folder: Path) -> dict[str, str]:
    """What a shell on the login host starts with; nothing of the machine's own environment."""
    home = str(folder / "home")
    return {"PATH": SYSTEM_PATH, "HOME": home, "USER": "root", "LOGNAME": "root", "LANG": "C.UTF-8", "TERM": "dumb"}


def read_record(folder: Path) -> dict[str, Any]:
    """Read a bed's record; of a folder without one that nobody owns it and it has no hosts."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text())
    except FileNotFoundError:
        return {"owner": None, "hosts": {}}
    return record


def recorded_hosts(folder: Path) -> dict[str, Host]:
    """Hosts of a bed that another process brought up."""
    environment = user_environment(folder)
    hosts = read_record(folder)["hosts"]
    return {name: Host(name, ProcessId(*identity), environment) for name, identity in hosts.items()}


def end(folder: Path) -> None:
    """Take down a bed that another process brought up."""
    hosts = recorded_hosts(folder).values()
    with held_namespaces(hosts) as namespaces:
        for host in reversed(hosts):
            host.holder.kill()
        wait_for_end(namespaces)
    cgroups.remove(folder.name)
    shutil.rmtree(folder, ignore_errors=True)


def remove_stale(base: Path) -> None:
    """Take down the beds under ``base`` whose owner was killed before it could."""
    for folder in [path.parent for path in base.glob(f"*/{RECORD}")]:
        owner = read_record(folder)["owner"]
        if owner and not ProcessId(*owner).alive:
            end(folder)
