"""``neoxlite generate``: continue texts with a checkpoint."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.argument("config", nargs=-1)
@click.option("-d", "--conf-dir", metavar="DIR", help="Folder of the configuration files.")
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Override a key of the configuration.")
@click.option("--load", metavar="DIR", help="Folder of the checkpoints, or one checkpoint. [default: load of CONFIG]")
@click.option("--iteration", type=click.IntRange(min=0), help="Take this iteration, not the latest.")
@click.option("--prompt", metavar="TEXT", help="Text to continue; - reads it from stdin. [default: as text_gen_type]")
@click.option("--max-new-tokens", type=click.IntRange(min=1), help="[default: maximum_tokens]")
@click.option("--temperature", type=click.FloatRange(min=0), help="0 is greedy. [default: temperature]")
@click.option("--top-k", type=click.IntRange(min=0), help="Choose among the K most probable tokens. [default: top_k]")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1),
    help="Sample from the smallest set of tokens with total probability P. [default: top_p]",
)
@click.option("--num-samples", type=click.IntRange(min=1), help="Texts for each prompt. [default: num_samples]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="[default: seed]")
@click.option("-i", "--sample-input-file", metavar="FILE", help="Prompts, one a line. [default: sample_input_file]")
@click.option("-o", "--sample-output-file", metavar="FILE", help="Write JSON lines there. [default: to the terminal]")
def generate(
    config: tuple[str, ...],
    conf_dir: str | None,
    assignments: tuple[str, ...],
    load: str | None,
    iteration: int | None,
    prompt: str | None,
    max_new_tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    num_samples: int | None,
    seed: int | None,
    sample_input_file: str | None,
    sample_output_file: str | None,
) -> None:
    """Continue texts. Model, tokenizer and settings are the checkpoint's own, unless CONFIG is given.

    \b
    Examples:
      neoxlite generate --load checkpoints --prompt "def main("
      neoxlite generate --load checkpoints/global_step1000 --prompt "昔々" \\
          --temperature 0.8 --top-p 0.9
      neoxlite generate --load checkpoints -i prompts.txt -o texts.jsonl

    What is not given comes from the keys of text generation. Without a prompt text_gen_type decides: unconditional
    texts, the lines of sample_input_file, or prompts typed at the terminal, each ended by prompt_end.
    """
    from neoxlite.cli.checkpoint_options import load_folder, optional_config
    from neoxlite.model.generation import Sampling
    from neoxlite.model.prompts import prompts_of

    chosen: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    Sampling(**{name: value for name, value in chosen.items() if value is not None})  # a mistake is told at once
    cfg = optional_config(config, conf_dir, assignments)
    folder = load_folder(load, cfg, iteration)

    import contextlib

    from neoxlite.checkpoint.restore import restore
    from neoxlite.model.prompts import TextFile
    from neoxlite.model.writing import Writer
    from neoxlite.parallel.distributed import choose_device

    restored = restore(folder, choose_device(0), cfg=cfg)
    cfg = restored.cfg
    writer = Writer(
        restored.model,
        restored.tokenizer,
        Sampling(**{name: getattr(cfg, name) if value is None else value for name, value in chosen.items()}),
        max_new_tokens if max_new_tokens is not None else cfg.maximum_tokens,
        seed if seed is not None else cfg.seed,
    )
    count = num_samples if num_samples is not None else cfg.num_samples
    output = sample_output_file
    if output is None and prompt is None and cfg.source("sample_output_file") != "default":
        output = cfg.sample_output_file
    prompts = prompts_of(cfg, prompt, sample_input_file, count)
    if output is not None:
        with contextlib.closing(TextFile(output)) as file:
            for text in prompts:
                written = writer.write(text)
                file.add(text, written.text, written.tokens, finished=written.finished, seconds=written.seconds)
        click.echo(f"texts are in {output}", err=True)
        return
    for number, text in enumerate(prompts):
        if count > 1:
            click.echo(f"--- {number % count + 1} of {count} ---")
        click.echo(text, nl=False)
        writer.write(text, lambda part: click.echo(part, nl=False))
        click.echo()
