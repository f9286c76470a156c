"""Grid Engine on the virtual hosts: sge_qmaster on the login host, one sge_execd a node, with a site's ways in front.

The site's ways are those of ABCI 2.0 and TSUBAME 4.0 as seen from outside: ``qsub -g GROUP`` on the command line only,
and ``-l rt_F=N`` for N whole nodes with all their slots. Grid Engine 8.1.9 has neither: a wrapper in the place of
Debian's takes the first, a job submission verifier (jsv(1)) on the server turns the second into a parallel environment.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.testbed.hosts import Host, Hosts
from tests.cluster.testbed.processes import PATIENCE_S, wait_until

PROGRAMS = Path("/usr/lib/gridengine")
SHARE = Path("/usr/share/gridengine")
CELL = "/var/lib/gridengine/default"
SPOOL = "/var/spool/gridengine"
GROUPS = ("tga-test", "gaa50000")
_ENVIRONMENT = {"SGE_ROOT": "/var/lib/gridengine", "SGE_CELL": "default", "SGE_ARCH": "lx-amd64"}

WRAPPER = """\
#!/bin/bash
# In the place of Debian's own wrapper, to which all commands are links.
prog=${{0##*/}}
export SGE_ROOT=/var/lib/gridengine SGE_CELL=default SGE_ARCH=lx-amd64
if [[ $prog == q@(sub|rsh) && $1 == -g ]]; then
  [[ " {groups} " == *" $2 "* ]] || {{ echo "$prog: group $2: no such group, or you are not a member" >&2; exit 1; }}
  set -- -A "$2" "${{@:3}}"
fi
exec /usr/lib/gridengine/$prog "$@"
"""

# `-l rt_F=N` without -pe becomes -pe with all slots of N hosts.
VERIFIER = """\
#!/bin/bash
while read -r command name value; do
  case $command in
    START) requests='' pe='' && echo STARTED ;;
    PARAM)
      case $name in
        l_hard) requests=$value ;;
        pe_name) pe=$value ;;
      esac ;;
    BEGIN)
      nodes='' others=''
      IFS=, read -ra parts <<<"$requests"
      for part in "${parts[@]}"; do
        case $part in
          rt_F=*) nodes=${part#*=} ;;
          *) others+=,$part ;;
        esac
      done
      if [[ ! $nodes || $pe ]]; then
        echo 'RESULT STATE ACCEPT'
      elif [[ $requests != *h_rt=* ]]; then
        echo 'RESULT STATE REJECT h_rt must be specified'
      else
        slots=$((nodes * @slots@))
        printf '%s\\n' "PARAM l_hard ${others#,}" 'PARAM pe_name rt_F' "PARAM pe_min $slots" "PARAM pe_max $slots" \\
          'RESULT STATE CORRECT'
      fi ;;
    QUIT) exit 0 ;;
  esac
done
"""

PARALLEL_ENVIRONMENT = """\
pe_name            rt_F
slots              9999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    {slots}
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary TRUE
qsort_args         NONE
"""

EXECUTION_HOST = """\
hostname              {host}
load_scaling          NONE
complex_values        slots={slots}
user_lists            NONE
xuser_lists           NONE
projects              NONE
xprojects             NONE
usage_scaling         NONE
report_variables      NONE
"""

# What differs from Debian's values: everything happens as soon as it can, and root may submit.
GLOBAL = {
    "load_report_time": "00:00:02",
    "max_unheard": "00:00:30",
    "reschedule_unknown": "00:00:05",
    "min_uid": "0",
    "min_gid": "0",
    "reporting_params": (
        "accounting=true reporting=false flush_time=00:00:01 accounting_flush_time=00:00:00 joblog=false "
        "sharelog=00:00:00"
    ),
    "finished_jobs": "1000",
    "mailer": "/bin/true",
    "execd_params": "INHERIT_ENV=false",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
    "load_adjustment_decay_time": "0:0:0",
    "maxujobs": "0",
}
QUEUE = {
    "qname": "all.q",
    "hostlist": "@allhosts",
    "load_thresholds": "NONE",  # a busy machine would close the queue
    "pe_list": "rt_F",
    "shell": "/bin/bash",
    "rerun": "FALSE",
    "shell_start_mode": "unix_behavior",
    "notify": "00:00:05",
}


def missing() -> list[str]:
    """One line for each program that Grid Engine needs and this machine lacks."""
    programs = [PROGRAMS / name for name in ("sge_qmaster", "sge_execd", "qsub")]
    return [f"program {path} (packages gridengine-master, -exec, -client)" for path in programs if not path.exists()]


class GridEngine:
    """One Grid Engine cell, with its files in ``folder``."""

    def __init__(self, hosts: Hosts, folder: Path, *, slots: int = 16) -> None:
        """``slots`` are those of each node."""
        self.hosts = hosts
        self.folder = folder
        self.slots = slots

    def up(self) -> None:
        """Start every daemon; returns when all queue instances answer."""
        self._write_files()
        for host in self.hosts.by_name.values():
            self._mount(host)
        login = self.hosts.login
        # The data base in memory: each change is an fsync.
        memory = "/dev/shm/spooldb"
        login.run("sh", "-c", f"mkdir {memory} && chown sgeadmin: {memory} && mount --bind {memory} {SPOOL}/spooldb")
        make_cell = [SHARE / "scripts" / "init_cluster", _ENVIRONMENT["SGE_ROOT"], "default", f"{SPOOL}/spooldb"]
        login.run("runuser", "-u", "sgeadmin", "--", *make_cell, "sgeadmin")
        self.start_qmaster()
        self._configure()
        for node in self.hosts.nodes:
            self.start_execd(node)
        wait_until(self.ready, PATIENCE_S, f"the queue instances do not come up: see {self.folder}")

    def start_qmaster(self) -> None:
        """Start the master; returns when it answers."""
        self.hosts.login.run(PROGRAMS / "sge_qmaster", env=_ENVIRONMENT)
        ask = [PROGRAMS / "qconf", "-sh"]

        def answers() -> bool:
            return self.hosts.login.run(*ask, env=_ENVIRONMENT, check=False).returncode == 0

        wait_until(answers, PATIENCE_S, "no sge_qmaster")

    def start_execd(self, node: Host) -> None:
        """Start the daemon of one node."""
        node.run(PROGRAMS / "sge_execd", env=_ENVIRONMENT)

    def ready(self) -> bool:
        """Whether every queue instance is heard of and open."""
        lines = self.hosts.login.run("qstat", "-f", check=False).stdout.splitlines()
        fields = [line.split() for line in lines if line.startswith("all.q@")]
        return len(fields) == len(self.hosts.nodes) and all(len(row) == 5 and row[4] != "-NA-" for row in fields)

    def qconf(self, *arguments: str | Path) -> str:
        """Run qconf(1); what it printed."""
        return self.hosts.login.run(PROGRAMS / "qconf", *arguments, env=_ENVIRONMENT).stdout

    def _write_files(self) -> None:
        for name in ("cell/common", "spool/qmaster/job_scripts", "spool/spooldb", "spool/execd", "bin", "conf"):
            (self.folder / name).mkdir(parents=True)
        common = self.folder / "cell" / "common"
        shutil.copy(SHARE / "default-bootstrap", common / "bootstrap")
        (common / "act_qmaster").write_text("login\n")  # clients on other hosts need it before the master writes it
        for name, text in (
            ("wrapper", WRAPPER.format(groups=" ".join(GROUPS))),
            ("jsv", VERIFIER.replace("@slots@", str(self.slots))),
        ):
            path = self.folder / "bin" / name
            path.write_text(text)
            path.chmod(0o755)
        for top in ("cell", "spool"):
            shutil.chown(self.folder / top, "sgeadmin", "sgeadmin")
            for path in (self.folder / top).rglob("*"):
                shutil.chown(path, "sgeadmin", "sgeadmin")

    def _mount(self, host: Host) -> None:
        mounts = (
            (self.folder / "cell", CELL),
            (self.folder / "spool", SPOOL),
            (self.folder / "bin" / "wrapper", SHARE / "gridengine-wrapper"),
        )
        host.run("sh", "-c", " && ".join(f"mount --bind '{source}' '{target}'" for source, target in mounts))

    def _configure(self) -> None:
        own = {"jsv_url": f"script:{self.folder}/bin/jsv"}
        self.qconf("-Mconf", self._changed("global", self.qconf("-sconf", "global"), {**GLOBAL, **own}))
        self.qconf("-Msconf", self._changed("scheduler", self.qconf("-ssconf"), SCHEDULER))
        complexes = [line for line in self.qconf("-sc").splitlines() if not line.startswith("#")]
        self.qconf("-Mc", self._file("complexes", "\n".join([*complexes, "rt_F rt_F INT <= YES YES 0 0"]) + "\n"))
        self.qconf("-Ap", self._file("rt_F", PARALLEL_ENVIRONMENT.format(slots=self.slots)))
        names = [host.name for host in self.hosts.nodes]
        for name in self.hosts.by_name:
            self.qconf("-ah", name)
            self.qconf("-as", name)
        for name in names:
            self.qconf("-Ae", self._file(name, EXECUTION_HOST.format(host=name, slots=self.slots)))
        self.qconf("-Ahgrp", self._file("allhosts", f"group_name @allhosts\nhostlist {' '.join(names)}\n"))
        queue = {**QUEUE, "slots": str(self.slots)}
        self.qconf("-Aq", self._changed("all.q", self.qconf("-sq"), queue))

    def _changed(self, name: str, text: str, changes: dict[str, str]) -> Path:
        """Write a configuration that qconf printed, with some values changed."""
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        kept = [line for line in lines if line.partition(" ")[0] not in changes and not line.startswith(" ")]
        return self._file(name, "\n".join([*kept, *(f"{key} {value}" for key, value in changes.items())]) + "\n")

    def _file(self, name: str, text: str) -> Path:
        path = self.folder / "conf" / name
        path.write_text(text)
        return path
