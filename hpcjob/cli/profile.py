"""``hpcjob profile``: which clusters are known, what is known of one, and whether it is true here."""

from __future__ import annotations

import click

from hpcjob.cli.options import complete_profile
from neoxlite.common.printable import tell


@click.group()
def profile() -> None:
    """List, show and check cluster profiles.

    \b
    Examples:
      hpcjob profile list
      hpcjob profile show abci3
      hpcjob profile check -p abci3
    """


@profile.command("list", short_help="List the profiles, one per line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_profiles(as_json: bool) -> None:
    """List the profiles that are found, a line each.

    A profile in ./cluster_profiles, ~/.config/hpcjob/cluster_profiles or $HPCJOB_PATH comes before a shipped one of its
    name, which is that of its file.

    \b
    Examples:
      hpcjob profile list
      hpcjob profile list --json | jq -r 'select(.scheduler == "pbs") | .name'
    """
    import json

    from hpcjob.cli.table import print_table
    from hpcjob.errors import InputError
    from hpcjob.loading.profiles import profile_names, read_profile

    rows = []
    notes: list[str] = []
    for name in profile_names():
        try:
            cluster, source = read_profile(name, notes=notes)
        except InputError as error:
            tell(error.message)
            continue
        queue = cluster.queues.get(cluster.scheduler.resource or "")
        most = queue.sizes[-1].nodes if queue and queue.sizes else cluster.limits.nodes
        gpus = f"{cluster.node.gpus} x {cluster.node.gpu}" if cluster.node.gpus else "none"
        rows.append(
            {
                "name": name,
                "aliases": ",".join(cluster.aliases),
                "scheduler": cluster.scheduler.type,
                "gpus": gpus,
                "nodes": most,
                "launcher": cluster.launcher.default,
                "status": cluster.status,
                "system": cluster.title,
                "file": source.label,
            }
        )
    for note in notes:
        tell(f"note: {note}")
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return
    print_table(rows, hide=("aliases", "launcher", "file"), fold=("gpus", "system"))


@profile.command(short_help="Compare a profile with this cluster.")
@click.option("--profile", "-p", "name", metavar="NAME", shell_complete=complete_profile, help="Cluster profile.")
@click.option(
    "--write", is_flag=False, flag_value="", default=None, metavar="[FILE]", help="Write a profile with what was found."
)
@click.option("--force", is_flag=True, help="Let --write replace a file that exists.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=30.0,
    metavar="S",
    help="Time limit of each command in seconds (30).",
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def check(name: str | None, write: str | None, force: bool, timeout: float, as_json: bool) -> int:
    """Compare a profile with this cluster: queues and their limits, modules, launchers, account, CUDA. Submits nothing.

    Run it on a login node. It asks the scheduler for its version and queues (sinfo and scontrol; qstat -Qf; qconf -sc;
    pjstat --rsc), `module avail` for each module of the profile, where the launchers are, and which accounts you have.
    Each command has a time limit, and one that fails is a row of the table. The profile is that of --profile,
    HPCJOB_PROFILE or the configuration.

    --write makes a profile that extends the one checked, with the values found here, each with the command that
    reported it and the date; without FILE ~/.config/hpcjob/cluster_profiles/NAME.yml, which then comes before a shipped
    one.

    The exit code is 0 where nothing differs, 64 where something does, 65 where not all could be checked.

    \b
    Examples:
      hpcjob profile check -p abci3
      hpcjob profile check -p lab --write cluster_profiles/ourlab.yml
      hpcjob profile check -p lab --json | jq '.rows[] | .verdict'
    """
    from hpcjob.cli.profile_check import run

    return run(name, write, force=force, timeout_s=timeout, as_json=as_json)


@profile.command(short_help="Print a profile's file.")
@click.argument("name", shell_complete=complete_profile)
@click.option("--resolved", is_flag=True, help="Print the effective values, merged from all files, without comments.")
def show(name: str, resolved: bool) -> None:
    """Print a profile's file, comments and all; with `extends:` also those it starts from.

    \b
    Examples:
      hpcjob profile show abci3
      hpcjob profile show abci3 > cluster_profiles/mine.yml   a copy to change
      hpcjob profile show mine --resolved                     what holds at last
    """
    from hpcjob.documents.writing import whole
    from hpcjob.loading.profiles import profile_chain, read_profile

    notes: list[str] = []
    profile, _ = read_profile(name, notes=notes)  # a broken profile is told before it is shown
    for note in notes:
        tell(f"note: {note}")
    if resolved:
        print(whole(profile), end="")
        return
    for path in profile_chain(name):
        print(f"# {path}")
        print(path.read_text(encoding="utf-8-sig"))


@profile.command(short_help="Print the path of a profile's file.")
@click.argument("name", required=False, shell_complete=complete_profile)
def path(name: str | None) -> None:
    """Print the path of a profile's file; without NAME the folders that are searched.

    \b
    Examples:
      hpcjob profile path
      $EDITOR "$(hpcjob profile path mine)"
    """
    from hpcjob.loading.profiles import load_profile
    from hpcjob.resources import PROFILES, folders

    if name is None:
        for folder in folders(PROFILES):
            print(folder)
        return
    print(load_profile(name)[1])
