"""``hpcjob env``: the Python environment of jobs."""

from __future__ import annotations

from pathlib import Path

import click

from hpcjob.cli.options import complete_profile
from neoxlite.common.printable import tell


@click.group()
def env() -> None:
    """Make the Python environment of a cluster's jobs.

    \b
    Examples:
      hpcjob env create -p abci3 --dest /groups/gxx/me/venv | less
      hpcjob env create -p local --run
    """


@env.command(short_help="Print or run the script that makes it.")
@click.option(
    "--profile", "-p", required=True, metavar="NAME", shell_complete=complete_profile, help="Cluster profile."
)
@click.option("--dest", metavar="DIR", help="The virtual environment (default: ./venv-PROFILE).")
@click.option("--run", is_flag=True, help="Run the script instead of printing it.")
@click.option("--output", "-o", metavar="FILE", type=click.Path(path_type=Path), help="Write the script to a file.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--python", default="python3", metavar="PATH", help="Interpreter, found after the modules (python3).")
@click.option("--cuda", metavar="VERSION", help="CUDA version of torch (default: the profile's); none: for the CPU.")
@click.option("--torch", metavar="VERSION", help="Version of torch (default: the newest that fits).")
@click.option("--project", metavar="WHAT", help="What pip installs as hpcjob (default: this checkout or version).")
@click.option("--set", "settings", multiple=True, metavar="A.B=C", help="Set any key of the profile; may be repeated.")
def create(
    profile: str,
    dest: str | None,
    run: bool,
    output: Path | None,
    force: bool,
    python: str,
    cuda: str | None,
    torch: str | None,
    project: str | None,
    settings: tuple[str, ...],
) -> int:
    """Print the script that sets up Python on a login node: read it, then run it; or --run.

    It loads the modules of a job on that profile, makes a virtual environment, and installs torch (from PyTorch's own
    index, for the profile's CUDA version), DeepSpeed and this project. It stops at the first fault with one line that
    says what to do; run again, it skips what was done (DIR.setup remembers). The last line is what to put into the
    job file: `python: {venv: DIR}`.

    \b
    Examples:
      hpcjob env create -p abci3 --dest /groups/gxx/me/venv | less
      hpcjob env create -p abci3 --dest /groups/gxx/me/venv --run
      hpcjob env create -p lab --cuda 12.4 --set modules.load='[cuda/12.4]'
      hpcjob env create -p local --run
    """
    import sys

    from hpcjob.cli.files import write_new
    from hpcjob.cli.options import split_option
    from hpcjob.errors import InputError
    from hpcjob.home import expanded
    from hpcjob.loading.overrides import Override
    from hpcjob.loading.profiles import read_profile
    from hpcjob.setup_env import setup_script

    if run and output is not None:
        raise click.UsageError("--run and --output do not go together: write it, then bash FILE")
    notes: list[str] = []
    overrides = []
    for item in settings:
        path, value = split_option(item, "--set", "a.b=c")
        overrides.append(Override(path.removeprefix("profile."), value, f"--set {path}", is_yaml=True))
    cluster, _ = read_profile(profile, overrides, notes=notes)
    for note in notes:
        tell(f"note: {note}")
    venv = expanded(dest or f"venv-{cluster.name}").absolute()
    script = setup_script(cluster, venv=venv, python=python, cuda=cuda, torch=torch, project=project)
    for prefix in cluster.paths.not_shared:
        if venv.resolve().is_relative_to(Path(prefix).resolve()):
            raise InputError(
                f"--dest: {venv}: {cluster.name} does not share {prefix} with its compute nodes (paths.not_shared)",
                hint="give a folder on a shared file system",
            )
    if output is not None:
        write_new(output, script, force)
    elif run:
        return _run(script, venv)
    else:
        sys.stdout.buffer.write(script.encode())
    return 0


def _run(script: str, venv: Path) -> int:
    """Run the script, and leave it beside its notes."""
    import subprocess

    from hpcjob.errors import HpcjobError
    from neoxlite.common.files import write_whole

    path = Path(f"{venv}.setup") / "setup.sh"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, script, mode=0o700)
    except OSError as error:
        raise HpcjobError(
            f"{error.filename}: {error.strerror}", hint="give --dest a folder that you may write"
        ) from None
    return subprocess.run(["bash", str(path)], check=False).returncode
