"""PID 1 of one virtual host: prepares the host's own mounts, then holds its namespaces.

Started by ``unshare`` with its standard library alone. Arguments: NAME HOSTS_FOLDER OWNER_FD READY_FD VISIBLE...
READY_FD gets the pid as the machine sees it. The host lives until this process dies: by SIGKILL, or by itself when
OWNER_FD reaches its end, which it does whatever way its owner ended. The word "keep" on OWNER_FD frees it of the owner.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def mount(*arguments: str) -> None:
    """Run mount(8) in this host's mount namespace (made private by unshare)."""
    subprocess.run(["mount", *arguments], check=True)


def private_tmp(visible: list[str]) -> None:
    """Give the host its own /tmp, as a node has, in which the folders ``visible`` are still the machine's."""
    kept: list[tuple[Path, str]] = []
    for folder in (path for path in visible if Path(path).is_relative_to("/tmp")):
        parked = Path(f"/run/visible/{len(kept)}")
        parked.mkdir(parents=True)
        mount("--bind", folder, str(parked))
        kept.append((parked, folder))
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    for parked, folder in kept:
        Path(folder).mkdir(parents=True)
        mount("--move", str(parked), folder)


def main() -> None:
    """Prepare the host and wait."""
    name, hosts_folder, owner, ready, *visible = sys.argv[1:]
    machine_pid = Path("/proc/self/stat").read_text().split()[0]  # /proc is still the machine's
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run")
    for service in ("sshd", "munge", "lock"):
        Path("/run", service).mkdir(mode=0o755)
    private_tmp(visible)
    mount("--bind", f"{hosts_folder}/hosts", "/etc/hosts")
    mount("--bind", f"{hosts_folder}/nsswitch.conf", "/etc/nsswitch.conf")
    mount("--bind", f"{hosts_folder}/ssh_config.d", "/etc/ssh/ssh_config.d")
    socket.sethostname(name)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then reaps orphans, which PID 1 inherits
    os.write(int(ready), f"{machine_pid}\n".encode())
    os.close(int(ready))
    if os.read(int(owner), 4) == b"keep":
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
