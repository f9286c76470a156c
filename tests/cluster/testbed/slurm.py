"""Slurm on the virtual hosts: munged and slurmctld on the login host, one slurmd a node.

The settings that differ from a site's are those that make things happen at once, and those without which slurmd does
not run outside systemd: no cgroups, unless memory is to be limited.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.cluster.testbed import accounting, cgroups
from tests.cluster.testbed.hosts import Host, Hosts
from tests.cluster.testbed.processes import PATIENCE_S, ProcessId, wait_until

SLURM_CONF = """\
ClusterName=testbed
SlurmctldHost=login
AuthType=auth/munge
AuthInfo=cred_expire=10
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
{processes}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=60
MessageTimeout=10
TCPTimeout=2
MinJobAge=300
InactiveLimit=0
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,default_queue_depth=2000
SlurmdParameters=config_overrides
GresTypes=gpu
{accounting}
NodeName={nodes} CPUs={cpus} RealMemory=64000 Gres=gpu:{gpus} State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=debug Nodes=ALL Default=YES MaxTime=24:00:00 DefaultTime=00:10:00 State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=24:00:00 DefaultTime=00:10:00 State=UP PriorityTier=2
"""

WITH_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=login
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment"""

WITHOUT_ACCOUNTING = "AccountingStorageType=accounting_storage/none"

WITHOUT_CGROUPS = """\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectTypeParameters=CR_Core"""

# What uses more memory than it asked for is killed.
WITH_CGROUPS = """\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100"""


class Slurm:
    """One Slurm cluster, with its files in ``folder``."""

    def __init__(
        self,
        hosts: Hosts,
        folder: Path,
        *,
        gpus: int = 8,
        cpus: int = 16,
        has_accounting: bool = True,
        limits_memory: bool = False,
    ) -> None:
        """``gpus`` and ``cpus`` are what each node claims to have."""
        self.hosts = hosts
        self.folder = folder
        self.gpus = gpus
        self.cpus = cpus
        self.has_accounting = has_accounting
        self.limits_memory = limits_memory

    def up(self) -> None:
        """Start every daemon; returns when all nodes are idle."""
        self._write_configuration()
        for host in self.hosts.by_name.values():
            mounts = f"mount --bind {self.folder}/etc /etc/slurm && mount --bind {self.folder}/munge /run/munge"
            host.run("sh", "-c", f"mkdir -p /etc/slurm && {mounts}")
        login = self.hosts.login
        munge = [f"--key-file={self.folder}/munge.key", f"--log-file={self.folder}/log/munged.log"]
        login.run(
            "munged", "--force", "--num-threads=4", "--pid-file=/run/munged.pid", "--seed-file=/run/munge.seed", *munge
        )
        if self.has_accounting:
            accounting.start(login, self.folder)
        self.start_slurmctld()
        for node in self.hosts.nodes:
            self.start_slurmd(node)
        wait_until(self.idle, PATIENCE_S, f"the nodes do not become idle: see {self.folder}/log")

    def start_slurmd(self, node: Host) -> None:
        """Start the daemon of one node."""
        if self.limits_memory:
            cgroups.give(node, self.folder)
        node.run("slurmd", "-N", node.name)

    def start_slurmctld(self, *options: str) -> None:
        """Start the controller."""
        self.hosts.login.run("slurmctld", *options)

    def forget_jobs(self) -> None:
        """Start the controller anew without what it has saved: it knows of no job any more."""
        (controller,) = [pid for pid, command in self.hosts.login.processes().items() if command == "slurmctld"]
        ProcessId.of(controller).kill()
        self.start_slurmctld("-c")
        wait_until(self.idle, PATIENCE_S, f"the nodes do not become idle: see {self.folder}/log")

    def saved_ns(self) -> int:
        """When the controller last saved its jobs, in nanoseconds, 0: not yet. It does so seconds after a change."""
        saved = self.folder / "state" / "job_state"
        return saved.stat().st_mtime_ns if saved.exists() else 0

    def idle(self) -> bool:
        """Whether every node whose host is up is idle and answers."""
        lines = self.hosts.login.run("sinfo", "-h", "-N", "-p", "debug", "-o", "%N %T", check=False).stdout.splitlines()
        return {f"{node.name} idle" for node in self.hosts.nodes if node.holder.alive} <= set(lines)

    def _write_configuration(self) -> None:
        etc = self.folder / "etc"
        for name in ("etc", "log", "spool", "state", "dev", "munge"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "munge").chmod(0o755)
        for node in self.hosts.nodes:
            (self.folder / "spool" / node.name).mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        nodes = f"node[1-{len(self.hosts.nodes)}]"
        (etc / "slurm.conf").write_text(
            SLURM_CONF.format(
                folder=self.folder,
                nodes=nodes,
                cpus=self.cpus,
                gpus=self.gpus,
                accounting=WITH_ACCOUNTING if self.has_accounting else WITHOUT_ACCOUNTING,
                processes=WITH_CGROUPS if self.limits_memory else WITHOUT_CGROUPS,
            )
        )
        (etc / "plugstack.conf").touch()
        if self.limits_memory:
            (etc / "cgroup.conf").write_text(cgroups.CGROUP_CONF)
        # A GPU of gres.conf must name a character device, else its count is 0: clones of the null device.
        for number in range(self.gpus):
            os.mknod(self.folder / "dev" / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        files = f"{self.folder}/dev/gpu[0-{self.gpus - 1}]"
        (etc / "gres.conf").write_text(f"NodeName={nodes} Name=gpu File={files}\n" if self.gpus else "")
        if self.has_accounting:
            accounting.write_configuration(self.folder, etc)
