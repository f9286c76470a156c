"""Where prompts come from and where texts go, by GPT-NeoX's text_gen_type. Imports no torch.

Source: megatron/text_generation_utils.py and generate.py at ea7aefd8: ``unconditional`` writes num_samples texts
without a prompt, ``input-file`` continues each line of sample_input_file, ``interactive`` reads prompts from the
terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from neoxlite.errors import ConfigError, NeoxliteError

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


def prompts_of(cfg: NeoxConfig, given: str | None, input_file: str | None, num_samples: int) -> Iterator[str]:
    """Yield the prompts to continue, each as often as it is to be continued.

    Args:
        given: the text of --prompt, ``-`` for all of stdin.
        input_file: in place of sample_input_file; chooses ``input-file`` by itself.

    Raises:
        ConfigError: there is no input file where one is needed, or it cannot be read, or text_gen_type is not there.
    """
    kind = "input-file" if input_file else cfg.text_gen_type
    if given is not None:
        text = _all_of_stdin() if given == "-" else given
        yield from [text] * num_samples
    elif kind == "unconditional":
        yield from [""] * num_samples
    elif kind == "input-file":
        for line in _lines(input_file or cfg.sample_input_file):
            yield from [line] * num_samples
    elif kind == "interactive":
        for text in typed(sys.stdin, cfg.prompt_end):
            yield from [text] * num_samples
    else:
        raise ConfigError(
            f"text_gen_type: {kind} is not supported by neoxlite", hint="use unconditional, input-file or interactive"
        )


def typed(stream: IO[str], end: str) -> Iterator[str]:
    """Yield the prompts of a terminal: what is typed up to ``end`` and the line's end, until the input ends."""
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        text = "".join(lines)
        if text.rstrip("\n").endswith(end) or end == "\n":
            yield text.rstrip("\n").removesuffix(end)
            lines = []
    if lines:
        yield "".join(lines).rstrip("\n")


def _all_of_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


def _lines(path: str | None) -> Iterator[str]:
    if not path:
        raise ConfigError(
            "text_gen_type: input-file needs sample_input_file", hint="set it, or give --sample-input-file FILE"
        )
    try:
        with Path(path).open(encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield line.rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no UTF-8 text ({error.reason})"
        raise ConfigError(f"sample_input_file {path}: {reason}", hint="give a text file, a prompt a line") from error


class TextFile:
    """A file of texts as GPT-NeoX writes it: one JSON object a line. Made anew; closed by ``close``."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise NeoxliteError(
                f"sample_output_file {path} cannot be written: {error.strerror}", hint="give another file with -o"
            ) from error

    def add(self, prompt: str, text: str, tokens: int, *, finished: bool, seconds: float) -> None:
        """Write one text: ``finished`` says whether it ended by itself."""
        entry = {
            "context": prompt,
            "text": text,
            "length": tokens,
            "finished": finished,
            "message": None,
            "duration_seconds": round(seconds, 3),
        }
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
