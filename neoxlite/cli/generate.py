"""``neoxlite generate``: continue a text with a checkpoint."""

from __future__ import annotations

import click


@click.command()
@click.argument("config", nargs=-1)
@click.option("-d", "--conf-dir", metavar="DIR", help="Folder of the configuration files.")
@click.option("--load", metavar="DIR", help="Folder of the checkpoints, or one checkpoint. [default: load of CONFIG]")
@click.option("--iteration", type=click.IntRange(min=0), help="Take this iteration, not the latest.")
@click.option("--prompt", required=True, metavar="TEXT", help="Text to continue; - reads it from stdin.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--temperature", type=click.FloatRange(min=0), default=1.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=click.IntRange(min=0), default=0, help="Choose among the K most probable tokens.")
@click.option("--top-p", type=click.FloatRange(0, 1), default=0.0, help="Choose among the most probable share P.")
@click.option("--num-samples", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1234, show_default=True)
def generate(
    config: tuple[str, ...],
    conf_dir: str | None,
    load: str | None,
    iteration: int | None,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    num_samples: int,
    seed: int,
) -> None:
    """Continue a text. The model and tokenizer are the checkpoint's own, unless CONFIG is given.

    \b
    Examples:
      neoxlite generate --load checkpoints --prompt "def main("
      neoxlite generate --load checkpoints/global_step1000 --prompt "昔々" --temperature 0
    """
    from neoxlite.cli.checkpoint_options import load_folder, optional_config
    from neoxlite.model.generation import Sampling, TextStream
    from neoxlite.model.generation import generate as new_tokens

    sampling = Sampling(temperature, top_k, top_p)
    cfg = optional_config(config, conf_dir)
    folder = load_folder(load, cfg, iteration)

    import torch

    from neoxlite.checkpoint.restore import restore
    from neoxlite.parallel.distributed import choose_device

    if prompt == "-":
        with click.open_file("-", encoding="utf-8", errors="replace") as stdin:
            prompt = stdin.read()
    restored = restore(folder, choose_device(0), cfg=cfg)
    tokenizer = restored.tokenizer
    tokens = tokenizer.encode(prompt)
    if not tokens and tokenizer.eod is not None:
        tokens = [tokenizer.eod]  # an empty prompt: what follows the end of a document is the beginning of one
    generator = torch.Generator().manual_seed(seed)
    for number in range(num_samples):
        if num_samples > 1:
            click.echo(f"--- {number + 1} of {num_samples} ---")
        click.echo(prompt, nl=False)
        stream = TextStream(tokenizer, tokens)
        chosen = new_tokens(
            restored.model,
            tokens,
            max_new_tokens,
            sampling,
            generator,
            vocab_size=tokenizer.vocab_size,
            eod=tokenizer.eod,
        )
        for token in chosen:
            click.echo(stream.push(token), nl=False)
        click.echo(stream.flush())
