"""Keys and configuration by which the virtual hosts reach one another: no password, no home folder touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

CLIENT_CONFIG = """\
Match host login,node*,{network}.*
  IdentityFile {folder}/id_ed25519
  GlobalKnownHostsFile {folder}/known_hosts
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 60
"""

SERVER_CONFIG = """\
HostKey {folder}/ssh_host_ed25519_key
AuthorizedKeysFile {folder}/id_ed25519.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
PrintMotd no
MaxStartups 200:30:300
"""


def write_configuration(folder: Path, network: str) -> None:
    """Write keys, ``ssh_config.d/``, ``known_hosts`` and ``sshd_config`` into ``folder``.

    ``network`` is the first three numbers of the hosts' addresses, such as ``10.77.0``.
    """
    for key in ("id_ed25519", "ssh_host_ed25519_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", folder / key], check=True)
    host_key = " ".join((folder / "ssh_host_ed25519_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"login,node*,{network}.* {host_key}\n")
    (folder / "ssh_config.d").mkdir()
    (folder / "ssh_config.d" / "testbed.conf").write_text(CLIENT_CONFIG.format(folder=folder, network=network))
    (folder / "sshd_config").write_text(SERVER_CONFIG.format(folder=folder))
