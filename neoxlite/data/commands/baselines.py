"""``neoxlite data baselines``."""

from __future__ import annotations

from dataclasses import asdict

import click

from neoxlite.data.commands.options import print_json
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.ngram import measure_baselines


@click.command("baselines")
@click.option("--train", required=True, metavar="PREFIX", help="Dataset that the models are fitted on.")
@click.option("--valid", required=True, metavar="PREFIX", help="Held-out dataset that they are measured on.")
@click.option("--vocab-size", type=click.IntRange(1), help="Default: one more than the largest token.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(train: str, valid: str, vocab_size: int | None, as_json: bool) -> None:
    """Cross entropy of n-gram models on held-out tokens, in nats per token.

    A trained model should be well below both: a unigram model (add-one smoothing) and a bigram model (interpolated
    Kneser-Ney). Compare with the validation loss (lm_loss) on the same dataset.

    \b
    Example:
      neoxlite data baselines --train train_text_document \\
          --valid valid_text_document
    """
    result = measure_baselines(IndexedDataset(train), IndexedDataset(valid), vocab_size)
    if as_json:
        print_json(asdict(result))
        return
    click.echo(f"unigram (add-one)     {result.unigram:.4f} nats/token")
    click.echo(f"bigram (Kneser-Ney)   {result.bigram:.4f} nats/token")
    click.echo(
        f"fitted on {result.train_tokens:,} tokens, measured on {result.valid_tokens:,}, {result.vocab_size:,} in all"
    )
