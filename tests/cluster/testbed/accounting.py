"""Slurm's accounting: mariadbd and slurmdbd on the login host, with the data in its memory, for a real ``sacct``."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.testbed.hosts import Host
from tests.cluster.testbed.processes import PATIENCE_S, wait_until

DATA = "/dev/shm/mariadb"  # a tmpfs of the login host: making the system tables takes 0.5 s there, 5 s on a disk

SLURMDBD_CONF = """\
AuthType=auth/munge
DbdHost=login
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3306
StorageUser=slurm
StoragePass=testbed
StorageLoc=slurm_acct_db
CommitDelay=1
"""


def write_configuration(folder: Path, etc: Path) -> None:
    """Write slurmdbd.conf, which slurmdbd takes only if none but its user can read it."""
    conf = etc / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(SLURMDBD_CONF.format(folder=folder))


def start(login: Host, folder: Path) -> None:
    """Start both daemons; returns when slurmdbd answers."""
    install = [f"--datadir={DATA}", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
    login.run("mariadb-install-db", "--no-defaults", "--user=root", *install)
    socket = "/run/mariadb.sock"
    options = [
        *("--no-defaults", "--user=root", f"--datadir={DATA}", f"--socket={socket}", "--pid-file=/run/mariadbd.pid"),
        *(
            "--bind-address=127.0.0.1",
            "--port=3306",
            "--skip-log-bin",
            "--skip-name-resolve",
            "--performance-schema=off",
        ),
        *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"),
    ]
    login.start("setsid", "--fork", "mariadbd", *options, output=folder / "log" / "mariadbd.log").wait()
    client = ["mariadb", "--no-defaults", "-uroot", f"--socket={socket}", "-e"]

    def answers(*command: str) -> bool:
        return login.run(*command, check=False).returncode == 0

    wait_until(lambda: answers(*client, "select 1"), PATIENCE_S, f"mariadbd does not answer: see {folder}/log")
    user = "create user slurm@127.0.0.1 identified by 'testbed'; grant all on slurm_acct_db.* to slurm@127.0.0.1;"
    login.run(*client, user)
    login.run("slurmdbd")
    ask = ("sacctmgr", "-n", "list", "cluster")
    wait_until(lambda: answers(*ask), PATIENCE_S, f"slurmdbd does not answer: see {folder}/log")
