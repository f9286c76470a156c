"""What a user should know about a valid configuration: values that are hardly meant, and where GPT-NeoX differs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from neoxlite.config.architecture import GATED
from neoxlite.config.reader import Entry

_PLACEHOLDER = re.compile(r"<[A-Za-z][\w .-]*>")
_SHELL_WORD = re.compile(r"^~\w*(?=/)|\$\{?[A-Za-z_]\w*\}?")  # what a shell would replace
_LEAST_GATED_WIDTH = 2  # in hidden sizes; published models have 2.6 and more


def hardly_meant(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> list[str]:
    """Return warnings about values that are valid and yet look like a slip."""
    return [*_placeholders(entries), *_for_a_shell(entries), *_narrow_mlp(values, entries)]


def _placeholders(entries: Mapping[str, Entry]) -> Iterator[str]:
    for placeholder, names in _in_paths(_PLACEHOLDER, entries).items():
        yield f"{entries[names[0]].where}: put your own in place of {placeholder} in {', '.join(names)}"


def _for_a_shell(entries: Mapping[str, Entry]) -> Iterator[str]:
    for word, names in _in_paths(_SHELL_WORD, entries).items():
        yield (
            f"{entries[names[0]].where}: {word} in {', '.join(names)} stays as it is: files, as in GPT-NeoX, are read "
            "without a shell; write the path out, or give it by --set"
        )


def _in_paths(pattern: re.Pattern[str], entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """Return what ``pattern`` matches in paths, each with the keys that have it."""
    found: dict[str, list[str]] = {}
    for name, entry in entries.items():
        for text in entry.value if isinstance(entry.value, list) else [entry.value]:
            match = pattern.search(text) if isinstance(text, str) and "/" in text else None
            if match and name not in found.setdefault(match[0], []):
                found[match[0]].append(name)
    return found


def _narrow_mlp(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> Iterator[str]:
    """The width of a gated MLP is a third of intermediate_size since September 2024; before, it was the whole."""
    given, hidden = values["intermediate_size"], values["hidden_size"]
    if given is None or values["activation"] not in GATED or given >= 3 * _LEAST_GATED_WIDTH * hidden:
        return
    yield (
        f"{entries['intermediate_size'].where}: intermediate_size {given} gives {values['activation']} a width of "
        f"{given // 3}: GPT-NeoX takes a third; for the width {given} write {3 * given}"
    )


def differences(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> list[str]:
    """Return where training with these values is another than GPT-NeoX at ea7aefd8 makes of them."""
    notes = []
    if values["gradient_clipping"] == 1.0:
        notes.append(
            "gradient_clipping 1.0 clips here; GPT-NeoX since March 2023 does not pass this value on, and never clips"
        )
    if values["gradient_accumulation_steps"] > 1 and "gradient_accumulation_steps" not in entries:
        notes.append(
            f"gradient_accumulation_steps {values['gradient_accumulation_steps']} follows from train_batch_size; "
            "GPT-NeoX takes 1 unless null is written, and refuses the batch"
        )
    if values["pipe_parallel_size"] >= 1 and values["gradient_accumulation_steps"] > 1:
        notes.append(
            "the gradient is the mean over micro-batches; GPT-NeoX with pipe_parallel_size >= 1 takes their sum, and "
            f"its gradient norm is {values['gradient_accumulation_steps']} times as large"
        )
    if values["gpt_j_residual"] and not values["use_bias_in_mlp"]:
        notes.append("attention is kept here; GPT-NeoX with gpt_j_residual and without use_bias_in_mlp drops it")
    if values["gpt_j_residual"] and values["gpt_j_tied"]:
        notes.append("a block has one norm here; with gpt_j_tied GPT-NeoX keeps a second one that takes no part")
    return notes
