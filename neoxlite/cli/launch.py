"""``neoxlite launch``: start a training on this machine or on the hosts of a hostfile."""

from __future__ import annotations

import click


@click.command()
@click.argument("config", nargs=-1, required=True)
@click.option("-d", "--conf-dir", metavar="DIR", help="Folder of the configuration files.")
@click.option("-H", "--hostfile", metavar="FILE", help="Lines `NAME slots=N`. [default: hostfile of CONFIG]")
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a key, for example num_gpus=4 or train_iters=10.",
)
@click.option("--iteration", type=click.IntRange(min=0), help="Load this iteration, not the latest.")
@click.option(
    "--command",
    type=click.Choice(["train", "evaluate"]),
    default="train",
    show_default=True,
    help="What the ranks run.",
)
@click.option("--print", "print_only", is_flag=True, help="Print the script and start nothing.")
def launch(
    config: tuple[str, ...],
    conf_dir: str | None,
    hostfile: str | None,
    assignments: tuple[str, ...],
    iteration: int | None,
    command: str,
    print_only: bool,
) -> int:
    """Start all ranks of a run, as GPT-NeoX's deepy.py does, and wait for its end.

    \b
    On this machine, one rank a GPU; on several by ssh (pdsh), from a hostfile:
      neoxlite launch 125M.yml local_setup.yml
      neoxlite launch --hostfile hosts 2-7B.yml local_setup.yml
      python -m neoxlite.deepy train.py 2-7B.yml local_setup.yml

    The keys hostfile, include, exclude, num_nodes, num_gpus, launcher (pdsh, openmpi), master_addr and master_port are
    read from CONFIG. The hosts need the same folders. On a scheduler hpcjob does this job.

    The exit code is the run's: 0 done, 85 saved for the walltime, 86 stopped on request. Ctrl-C or SIGTERM asks the
    run to save and end, a second one ends it at once.
    """
    import os
    from pathlib import Path

    from neoxlite.config import load_config, parse_assignments
    from neoxlite.errors import NeoxliteError
    from neoxlite.launch.files import check_files
    from neoxlite.launch.run import make_run_folder, run_script
    from neoxlite.launch.script import NAME, launch_script
    from neoxlite.launch.settings import Request, launch_settings

    overrides = parse_assignments(assignments)
    options = ("--iteration", str(iteration)) if iteration is not None else ()
    request = Request(command, config, conf_dir, assignments, overrides, options, hostfile)
    settings = launch_settings(request, os.environ)
    if settings.note:
        click.echo(f"note: {settings.note}", err=True)
    cfg = load_config(config, conf_dir, overrides, settings.hosts.world_size)  # a mistake is told here, once
    if print_only:
        click.echo(launch_script(request, settings, os.environ, jobdir=None), nl=False)
        return 0
    if command == "train":
        check_files(cfg, settings.hosts)
    click.echo(f"neoxlite launch: {settings}")
    folder = make_run_folder(Path.cwd() / "outputs" / NAME)
    script = launch_script(request, settings, os.environ, jobdir=str(folder))
    if settings.check_hosts:
        from neoxlite.launch.reach import check_hosts

        try:
            check_hosts(settings.hosts.names, folder)
        except NeoxliteError:
            folder.rmdir()
            raise
    return run_script(script, folder)
