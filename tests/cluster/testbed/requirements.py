"""What this machine lacks for a test bed, in words for the reason of a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.cluster.testbed import modules

PROGRAMS = (
    *("unshare", "nsenter", "ip", "mount"),
    *("sshd", "ssh", "ssh-keygen", "pdsh", "mpirun"),
    *("munged", "slurmctld", "slurmd", "sbatch", "srun", "sacct"),
)
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing_services() -> list[str]:
    """One line for each thing that is missing; empty when a test bed can be brought up."""
    if not sys.platform.startswith("linux"):
        return ["virtual hosts need Linux namespaces"]
    if os.geteuid() != 0:
        return ["virtual hosts need root"]
    missing = [
        f"program {name}"
        for name in PROGRAMS + ACCOUNTING_PROGRAMS
        if not shutil.which(name, path=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}")
    ]
    if modules.init_script() is None:
        missing.append("environment-modules or Lmod")
    if not missing and not namespaces_allowed():
        missing.append("the right to make namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN)")
    return missing


def namespaces_allowed() -> bool:
    """Whether namespaces of the kinds that a host needs can be made, and a bridge in them."""
    command = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "ip", "link", "add", "br0"]
    return subprocess.run([*command, "type", "bridge"], capture_output=True, check=False).returncode == 0
