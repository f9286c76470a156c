"""What is fuzzed: how bytes are given to each reader, and what must hold whatever they are.

A target raises AssertionError for a broken promise and lets every exception but `UserError` through: both are findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neoxlite.config import ConfigError, NeoxConfig, key_table, load_config
from neoxlite.config.reader import shipped_folder
from neoxlite.config.summary import resolved
from neoxlite.data.bad_input import BadInput
from neoxlite.data.gpt_dataset import GPTDataset
from neoxlite.data.index_file import read_index
from neoxlite.data.index_map import build_index_map
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.repair import repair_dataset
from neoxlite.data.shard import WHOLE, Shard
from neoxlite.data.text_files import read_batches
from neoxlite.errors import DataError

GOLDEN: Final = Path(__file__).parents[2] / "golden"
_BIN_BYTES: Final = 1 << 20  # of tokens that are laid beside an index
_SEQ_LENGTH: Final = 3


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        check: gives bytes to the reader, in a folder of its own.
        seeds: good files to begin from.
        words: what is put into them: marks, keys, counts.
    """

    check: Callable[[Path, bytes], None]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...]


# Counted when the configuration is whole, and the value may be a default.
_COUNTING: Final = re.compile(r"padded_vocab|cannot be counted|pipe_partition_method")


def use_config(cfg: NeoxConfig) -> None:
    """Do the arithmetic that the command and the planner do, and list all values with their origins."""
    resolved(cfg)
    padded = cfg.padded_vocab_size(1000)
    cfg.parameter_count(padded)
    cfg.flops_per_iteration(padded)
    if cfg.num_layers <= 64:
        cfg.pipeline_partition(max(1, cfg.pipe_parallel_size), padded)


def check_config(path: Path, data: bytes) -> None:
    """Load ``data``: a configuration comes out, or a message on one line with the file's name."""
    path.write_bytes(data)
    try:
        use_config(load_config(path, allow_unsupported=True))
    except ConfigError as error:
        message, hint = error.message, error.hint
    else:
        return
    assert hint
    assert message.isprintable(), message  # which a line end is not
    assert path.name in message or _COUNTING.search(message), message


def use_dataset(prefix: str) -> None:
    """Open, verify and read all samples, as training would."""
    dataset = IndexedDataset(prefix)
    dataset.verify()
    index_map = build_index_map(dataset.sizes, range(len(dataset)), num_samples=1, seq_length=_SEQ_LENGTH, seed=1)
    samples = GPTDataset(dataset, index_map, _SEQ_LENGTH)
    for number in range(len(samples) + 1):
        assert samples.sample(number).size == _SEQ_LENGTH + 1


def refusal(work: Callable[[], object]) -> DataError | None:
    """Do something and return its message; None if it was done. Any other error is the caller's."""
    try:
        work()
    except DataError as error:
        return error
    return None


def check_dataset(prefix: str, changed: str) -> None:
    """A damaged dataset is used without an error or refused with its name; a repair never fails otherwise."""
    refused = refusal(lambda: use_dataset(prefix))
    # Without the prefix are only the messages of the index map, to which the caller adds it.
    assert refused is None or prefix in refused.message or "tokens" in refused.message, changed
    assert refused is None or refused.hint, changed
    mended = f"{prefix}_mended"
    if refusal(lambda: repair_dataset(prefix, mended)) is None:
        # Tokens are what they are: of a flipped bit in them only a negative one is seen.
        unseen = refusal(lambda: IndexedDataset(mended).verify())
        assert unseen is None or "is negative" in unseen.message, changed


def _check_index(folder: Path, data: bytes) -> None:
    """Give an index to the reader, beside as many tokens as it speaks of, which the reader would ask for first."""
    index, tokens = folder / "x.idx", folder / "x.bin"
    index.write_bytes(data)
    try:
        wanted = read_index(index).bin_bytes
    except DataError:
        wanted = len(data)
    with tokens.open("wb") as file:
        file.truncate(wanted if 0 <= wanted <= _BIN_BYTES else 64)
    check_dataset(str(folder / "x"), "x.idx")


def _check_yaml(folder: Path, data: bytes) -> None:
    check_config(folder / "x.yml", data)


def _check_lines(folder: Path, data: bytes) -> None:
    """Read lines whole, in two parts, and leaving out what is damaged: all agree with the json module."""
    path = folder / "x.jsonl"
    path.write_bytes(data)
    expected, bad_lines = _texts_by_json(data)
    refused = refusal(lambda: _texts(path, BadInput()))
    if bad_lines:
        assert refused is not None
        assert f"x.jsonl:{bad_lines[0]}: " in refused.message, (refused.message, bad_lines[0])
        assert refused.message.isprintable(), refused.message
        assert refused.hint
    else:
        assert refused is None, refused
    for parts in ((WHOLE,), (Shard(1, 2), Shard(2, 2))):
        bad = BadInput(skip=True)
        assert [text for part in parts for text in _texts(path, bad, part)] == expected
        assert bad.documents == len(bad_lines)


def _texts(path: Path, bad: BadInput, shard: Shard = WHOLE) -> list[str]:
    return [text for batch in read_batches([path], bad=bad, shard=shard) for text in batch.columns[0]]


def _texts_by_json(data: bytes) -> tuple[list[str], list[int]]:
    """Return the texts of the good lines, and the numbers of the bad ones, as the json module reads them."""
    texts, bad = [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            text = value if isinstance(value, str) else value["text"]
            texts.append(text if isinstance(text, str) else "\n\n".join([*text] if isinstance(text, list) else None))
        except (ValueError, KeyError, TypeError, RecursionError):
            bad.append(number)
    return texts, bad


def _yaml_seeds() -> list[bytes]:
    golden = sorted((GOLDEN / "config").glob("*.yml"))
    blog = sorted((Path(__file__).parents[1] / "config" / "blog").glob("*.yml"))
    return [path.read_bytes() for path in (*sorted(shipped_folder().glob("*.yml")), *blog, *golden)]


def _index_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((GOLDEN / "datasets").glob("*.idx")) if path.stat().st_size < 1000]


def _line_seeds() -> list[bytes]:
    own = [
        b'{"text": "a", "n": [1, {}, -2.5e3, null, true]}\r\n"bare"\n\n{"text": ["b", "c"]}\n',
        b'\xef\xbb\xbf{"n": 1, "text": "\\ud83d\\ude00 \\ud83d"}\n{"text": 1}\n[1]\n{"no": ""}',
    ]
    return [*own, (GOLDEN / "tokenized" / "input.jsonl").read_bytes()[:2000]]


_YAML_MARKS: Final = (
    b"<<: *a",
    b"&a ",
    b"*a",
    b"!!int ",
    b"\n---\n",
    b"? ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"- ",
    b"|\n",
    b"\t",
)
_NUMBERS: Final = (b"0", b"-1", b"1e400", b"9" * 30, b"0x10", b"1e-5", b".nan", b"1.0e_8", b"2026-13-45")
_COUNTS: Final = tuple(number.to_bytes(8, "little") for number in (0, 1, 2**31, 2**32, 2**61, 2**63, 2**64 - 1))
_INDEX_WORDS: Final = (b"MMIDIDX\x00\x00", b"TNTIDX\x00\x00", b"\x04", b"\x08", b"\xff" * 4, *_COUNTS)
_JSON_WORDS: Final = (b'{"text": "', b'"}\n', b"\n", b"\\u", b"\\ud83d", b"\xff", b"\xef\xbb\xbf", b"NaN", b"[" * 300)

TARGETS: Final = {
    "idx": Target(_check_index, _index_seeds, _INDEX_WORDS),
    "yaml": Target(
        _check_yaml, _yaml_seeds, (*_YAML_MARKS, *_NUMBERS, *(name.encode() + b": " for name in key_table()))
    ),
    "jsonl": Target(_check_lines, _line_seeds, _JSON_WORDS),
}
