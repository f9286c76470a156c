"""Virtual hosts: own hostname, network, processes, /tmp and /dev/shm each; the machine's file system otherwise.

The hosts' bridge lies inside the login host's network namespace, so that nothing is added to the machine's own network,
nothing leads out of it, and two test beds with the same names and addresses do not meet.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.testbed import ssh
from tests.cluster.testbed.processes import PATIENCE_S, ProcessId, TestbedError, pid_namespace, processes_in, wait_until
from tests.cluster.testbed.requirements import SYSTEM_PATH

NETWORK = "10.77.0"
HOLDER = Path(__file__).with_name("holder.py")
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")


@dataclass(frozen=True)
class Host:
    """A running virtual host."""

    name: str
    holder: ProcessId
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)

    def command(self, argv: Sequence[str | Path], cwd: Path | None = None) -> list[str]:
        """Command of the machine that runs ``argv`` on this host, in folder ``cwd``."""
        enter = ["nsenter", "--target", str(self.holder.pid), *NAMESPACES, f"--wdns={cwd or Path.cwd()}", "--"]
        return [*enter, *map(str, argv)]

    def run(
        self,
        *argv: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout_s: float = 240.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host with a login user's environment plus ``env``; output as text.

        With ``check`` a code other than 0 raises ``TestbedError`` that holds the output.
        """
        result = subprocess.run(
            self.command(argv, cwd),
            env={**self.environment, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        if check and result.returncode != 0:
            command = " ".join(map(str, argv))
            raise TestbedError(f"{self.name}: {command}: exit {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def start(
        self, *argv: str | Path, output: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command on this host in a session of its own, its output going to a file."""
        with output.open("ab") as log:
            return subprocess.Popen(
                self.command(argv, cwd),
                env={**self.environment, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def namespace(self) -> str | None:
        """Identity of the host's PID namespace, None once it is down."""
        return pid_namespace(self.holder.pid) if self.holder.alive else None

    def processes(self) -> dict[int, str]:
        """Processes of this host: pid on the machine -> command line."""
        return processes_in(namespaces_of([self]))

    def crash(self) -> None:
        """End every process of the host at once, as a loss of power does."""
        self.holder.kill()


class Hosts:
    """The hosts of one test bed, ``login`` first, with their files in ``folder``."""

    def __init__(self, folder: Path, visible: Iterable[Path], environment: Mapping[str, str]) -> None:
        """Prepare the files that all hosts share; ``visible`` are folders that hosts see though they lie in /tmp."""
        self.folder = folder
        self.visible = [str(path) for path in visible]
        self.environment = environment
        self.by_name: dict[str, Host] = {}
        self._parents: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True)
        (folder / "hosts").touch()
        nsswitch = Path("/etc/nsswitch.conf").read_text() if Path("/etc/nsswitch.conf").exists() else ""
        others = re.sub(r"^hosts:.*\n?", "", nsswitch, flags=re.MULTILINE)
        (folder / "nsswitch.conf").write_text(others + "hosts: files\n")  # no DNS: no server can be reached
        ssh.write_configuration(folder, NETWORK)

    @property
    def login(self) -> Host:
        """The host that users log in to."""
        return self.by_name["login"]

    @property
    def nodes(self) -> list[Host]:
        """The compute nodes, in order."""
        return [host for name, host in self.by_name.items() if name != "login"]

    def up(self, node_count: int, owner_fd: int) -> None:
        """Bring up ``login`` and ``node1`` ... ; they end when the pipe behind ``owner_fd`` does."""
        names = ["login", *(f"node{i}" for i in range(1, node_count + 1))]
        table = "".join(f"{NETWORK}.{i} {name}\n" for i, name in enumerate(names, start=1))
        sshd = str(shutil.which("sshd", path=SYSTEM_PATH))  # sshd insists on its absolute path
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{table}")
        for number, name in enumerate(names, start=1):
            host = self._hold(name, owner_fd)
            self.by_name[name] = host
            if name == "login":
                self._configure_network(
                    host, "link add br0 type bridge", f"addr add {NETWORK}.1/24 dev br0", "link set br0 up"
                )
            else:
                wire = f"link add v{number} type veth peer name eth0 netns {host.holder.pid}"
                self._configure_network(self.login, wire, f"link set v{number} master br0 up")
                self._configure_network(host, f"addr add {NETWORK}.{number}/24 dev eth0", "link set eth0 up")
            host.run(sshd, "-f", self.folder / "sshd_config", "-E", self.folder / f"{name}.sshd.log")

    def down(self) -> None:
        """End every process of every host."""
        for host in reversed(self.by_name.values()):
            host.holder.kill()
        for parent in self._parents:
            parent.wait()

    def _hold(self, name: str, owner_fd: int) -> Host:
        """Start the process that holds one host's namespaces."""
        ready_read, ready_write = os.pipe()
        log = self.folder / f"{name}.log"
        arguments = [name, str(self.folder), str(owner_fd), str(ready_write), *self.visible]
        unshare = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--", sys.executable, "-I", "-S", str(HOLDER)]
        with log.open("wb") as stream:
            parent = subprocess.Popen(
                [*unshare, *arguments],
                env={"PATH": SYSTEM_PATH},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                pass_fds=(owner_fd, ready_write),
                start_new_session=True,
            )
        self._parents.append(parent)
        os.close(ready_write)
        with os.fdopen(ready_read, "rb") as stream:
            pid = stream.readline()
        if not pid:
            raise TestbedError(f"host {name} did not start: {log.read_text(errors='replace')}")
        return Host(name, ProcessId.of(int(pid)), self.environment)

    @staticmethod
    def _configure_network(host: Host, *lines: str) -> None:
        """Run lines of ip(8) in the host's network, with the machine's own view of pids."""
        command = ["nsenter", "--target", str(host.holder.pid), "--net", "ip", "-batch", "-"]
        result = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise TestbedError(f"host {host.name}: ip: {result.stderr.strip()}")


def namespaces_of(hosts: Iterable[Host]) -> set[str]:
    """PID namespaces of those hosts that are up."""
    return {host.namespace for host in hosts if host.namespace is not None}


@contextlib.contextmanager
def held_namespaces(hosts: Iterable[Host]) -> Iterator[set[str]]:
    """PID namespaces of those hosts that are up, kept from the kernel, which gives their numbers to new ones at once.

    So what is found in one of them later is of this test bed, and not of another that has come up meanwhile.
    """
    with contextlib.ExitStack() as held:
        found = set()
        for host in hosts:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                handle = os.open(f"/proc/{host.holder.pid}/ns/pid", os.O_RDONLY)
                held.callback(os.close, handle)
                if host.holder.alive:
                    found.add(str(Path(f"/proc/self/fd/{handle}").readlink()))
        yield found


def wait_for_end(namespaces: set[str]) -> None:
    """Wait until no process is left in these PID namespaces."""
    wait_until(lambda: not processes_in(namespaces), PATIENCE_S, "processes of the test bed are left")
