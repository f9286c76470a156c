"""``neoxlite train``: train from GPT-NeoX YAML files."""

from __future__ import annotations

import os

import click


@click.command()
@click.argument("config", nargs=-1, required=True)
@click.option("-d", "--conf-dir", metavar="DIR", help="Folder of the configuration files.")
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a key, for example optimizer.params.lr=1e-4.",
)
@click.option("--iteration", type=click.IntRange(min=0), help="Resume from this iteration in load, not the latest.")
@click.option("--require-load", is_flag=True, help="Fail if load has no checkpoint, instead of starting at 0.")
@click.option("--launched", is_flag=True, hidden=True)  # given by `neoxlite launch` to its ranks
def train(
    config: tuple[str, ...],
    conf_dir: str | None,
    assignments: tuple[str, ...],
    iteration: int | None,
    require_load: bool,
    launched: bool,
) -> int:
    """Train a model from one or more GPT-NeoX YAML files.

    \b
    Alone on this machine, or as one rank of torchrun, mpirun or srun:
      neoxlite train 125M.yml local_setup.yml
      torchrun --nproc-per-node 8 -m neoxlite train 2-7B.yml
      neoxlite train run.yml --set train_iters=1000 \\
          --set optimizer.params.lr=3.0e-4

    A stop file (NEOXLITE_STOP_FILE), SIGTERM, SIGUSR1, SIGUSR2, SIGHUP or Ctrl-C saves a checkpoint and ends the run,
    with exit code 85 for the walltime and 86 otherwise; a second Ctrl-C ends it at once, with 130. Before the first
    iteration a signal ends the run at once, with nothing to save.
    """
    from neoxlite.config import load_config, parse_assignments
    from neoxlite.parallel.ranks import ranks_from_environment
    from neoxlite.training.environment import RunFiles
    from neoxlite.training.first_voice import named_rank, rank_0_speaks_first
    from neoxlite.training.outcome import Progress, failure_recorded
    from neoxlite.training.signals import EndSignals

    files = RunFiles.from_environment()
    with rank_0_speaks_first(named_rank(os.environ)):  # a launcher that names no address is refused on every rank
        ranks = ranks_from_environment()
    # From here on, so that a mistake in the configuration is in the outcome too, as is a torch that cannot be imported.
    outcome_file, progress = files.outcome if ranks.rank == 0 else None, Progress()
    with (
        rank_0_speaks_first(ranks.rank),
        failure_recorded(outcome_file, progress),
        EndSignals(outcome_file, progress),
    ):
        overrides = parse_assignments(assignments)
        if iteration is not None:
            overrides["iteration"] = iteration
        cfg = load_config(config, conf_dir, overrides, ranks.world_size, launched=launched)
        if require_load:
            from neoxlite.checkpoint.start import required

            required(cfg.load, cfg.iteration)
        from neoxlite.training.entry import run
    with rank_0_speaks_first(ranks.rank):
        return run(cfg, ranks=ranks, files=files).exit_code
