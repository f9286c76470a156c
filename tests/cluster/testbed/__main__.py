"""``python -m tests.cluster.testbed up | down | exec HOST -- COMMAND``: a cluster to try things on by hand."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.cluster.testbed.bed import BASE, Testbed, end, recorded_hosts
from tests.cluster.testbed.profile import write_profile
from tests.cluster.testbed.requirements import missing_services


def up(options: argparse.Namespace) -> None:
    """Bring up the named bed, or leave it if it is up with as many nodes."""
    folder = BASE / options.name
    hosts = recorded_hosts(folder)
    if len(hosts) == options.nodes + 1 and all(host.holder.alive for host in hosts.values()):
        print(f"{folder} is up")
        return
    if missing := missing_services():
        sys.exit("testbed: missing on this machine: " + ", ".join(missing))
    end(folder)
    began = time.monotonic()
    bed = Testbed(options.name, nodes=options.nodes, gpus=options.gpus, has_accounting=not options.no_accounting)
    bed.up()
    profile = write_profile(bed.home)
    bed.keep()
    names = " ".join(bed.hosts.by_name)
    print(f"{bed.folder} is up ({time.monotonic() - began:.1f} s): {names}; hpcjob's profile there: {profile}")


def execute(options: argparse.Namespace) -> None:
    """Replace this process by a command on one of the hosts."""
    hosts = recorded_hosts(BASE / options.name)
    if options.host not in hosts:
        sys.exit(f"testbed: no host {options.host}: there are {', '.join(hosts) or 'none (try up)'}")
    host = hosts[options.host]
    command = host.command(options.command or ["bash"], Path.cwd())
    environment = {**host.environment, "TERM": os.environ.get("TERM", "dumb")}
    os.execvpe(command[0], command, environment)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.testbed", description=__doc__)
    parser.add_argument("--name", default="manual", help="beds of different names run side by side")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("up", help="bring the cluster up")
    command.add_argument("--nodes", type=int, default=2)
    command.add_argument("--gpus", type=int, default=8, help="fake GPUs of each node")
    command.add_argument("--no-accounting", action="store_true", help="without slurmdbd: no sacct")
    command.set_defaults(act=up)
    command = commands.add_parser("down", help="end every process of it and remove its folder")
    command.set_defaults(act=lambda options: end(BASE / options.name))
    command = commands.add_parser("exec", help="run a command on one of its hosts: exec login -- sinfo")
    command.add_argument("host")
    command.add_argument("command", nargs="*")
    command.set_defaults(act=execute)
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    main()
