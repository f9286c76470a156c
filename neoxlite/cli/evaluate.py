"""``neoxlite evaluate``: loss of a checkpoint on held-out data."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from neoxlite.errors import ConfigError

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


@click.command()
@click.argument("config", nargs=-1, required=True)
@click.option("-d", "--conf-dir", metavar="DIR", help="Folder of the configuration files.")
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Override a key of the configuration.")
@click.option("--load", metavar="DIR", help="Folder of the checkpoints, or one checkpoint. [default: load of CONFIG]")
@click.option("--iteration", type=click.IntRange(min=0), help="Take this iteration, not the latest.")
@click.option("--split", "splits", type=click.Choice(["valid", "test"]), multiple=True, help="[default: both]")
@click.option("--samples", type=click.IntRange(min=1), help="Stop after this many sequences. [default: all]")
@click.option(
    "--n-grams", is_flag=True, help="Also print the losses of unigram and bigram models of the training data."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    config: tuple[str, ...],
    conf_dir: str | None,
    assignments: tuple[str, ...],
    load: str | None,
    iteration: int | None,
    splits: tuple[str, ...],
    samples: int | None,
    n_grams: bool,
    as_json: bool,
) -> None:
    """Print loss, perplexity and number of tokens of a checkpoint on the validation and test data of CONFIG.

    \b
    Alone, or as one rank of torchrun, mpirun or srun:
      neoxlite evaluate run.yml --load checkpoints
      neoxlite evaluate run.yml --load checkpoints --iteration 1000 --split test

    --n-grams needs one dataset in train_data_paths and one in valid_data_paths.
    """
    from neoxlite.cli.checkpoint_options import load_folder
    from neoxlite.config import load_config, parse_assignments
    from neoxlite.parallel.ranks import ranks_from_environment
    from neoxlite.training.first_voice import named_rank, rank_0_speaks_first

    with rank_0_speaks_first(named_rank(os.environ)):  # a launcher that names no address is refused on every rank
        ranks = ranks_from_environment()
    with rank_0_speaks_first(ranks.rank):
        # Every rank has the whole model here. A single process takes a configuration for stages and slices as it is.
        world_size = ranks.world_size if ranks.world_size > 1 else None
        cfg = load_config(config, conf_dir, parse_assignments(assignments), world_size)
        folder = load_folder(load, cfg, iteration)
        pair = _training_and_validation(cfg) if n_grams else None

        from neoxlite.data.indexed import IndexedDataset
        from neoxlite.data.ngram import measure_baselines
        from neoxlite.training.evaluate import evaluate_checkpoint

        result = evaluate_checkpoint(cfg, folder, ranks, splits or ("valid", "test"), samples)
    if ranks.rank != 0:
        return
    if pair is not None:
        train, valid = pair
        result["n_grams"] = asdict(measure_baselines(IndexedDataset(train), IndexedDataset(valid)))
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    click.echo(f"{result['checkpoint']} (iteration {result['iteration']})")
    for split, values in result["splits"].items():
        if values is None:
            click.echo(f"{split:6}no data")
        else:
            loss, perplexity, tokens = values["loss"], values["perplexity"], values["tokens"]
            click.echo(f"{split:6}loss {loss:.6f}  perplexity {perplexity:.4f}  tokens {tokens:,}")
    if pair is not None:
        _print_comparison(result)


def _training_and_validation(cfg: NeoxConfig) -> tuple[str, str]:
    train, valid = cfg.train_data_paths or [], cfg.valid_data_paths or []
    if len(train) != 1 or len(valid) != 1:
        raise ConfigError(
            "--n-grams: it compares on one training and one validation dataset",
            hint="give one path in train_data_paths and one in valid_data_paths, or use `neoxlite data baselines`",
        )
    return train[0], valid[0]


def _print_comparison(result: dict[str, Any]) -> None:
    click.echo("\nloss on the validation data, nats per token")
    model = result["splits"].get("valid")
    for name, key in (("unigram (add-one)", "unigram"), ("bigram (Kneser-Ney)", "bigram")):
        loss = result["n_grams"][key]
        lower = loss - model["loss"] if model else None
        told = "" if lower is None else f"   the model is {abs(lower):.2f} {'lower' if lower >= 0 else 'higher'}"
        click.echo(f"  {name:20} {loss:7.4f}{told}")
    if model:
        click.echo(f"  {'this model':20} {model['loss']:7.4f}")
