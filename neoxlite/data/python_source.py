"""Real text that every machine has: the source files of the running Python's own standard library."""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neoxlite.common.files import replacing
from neoxlite.errors import DataError

# Folders that are not the library itself: tests (often of broken or odd text), applications, installed packages.
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages", "__pycache__"}
)


@dataclass(frozen=True)
class Corpus:
    """What was written: files and bytes of text in each part."""

    train_files: int
    train_bytes: int
    valid_files: int
    valid_bytes: int


def collect_python(
    output: Path, *, valid_fraction: float = 0.1, max_mib: float | None = None, stdlib: Path | None = None
) -> Corpus:
    """Write ``train.jsonl`` and ``valid.jsonl`` of {"text", "path"} into ``output``, which is made if missing.

    A file belongs to one part by a hash of its path, so that the parts stay the same from run to run and between
    machines with the same Python. Files with equal content are taken once. The order is by another hash: a smaller
    ``max_mib`` takes the first files of the same order.

    Args:
        output: folder of the two files.
        valid_fraction: share of the files that is held out, between 0 and 1.
        max_mib: stop when this much text is collected (MiB, both parts together).
        stdlib: folder of the library; that of the running Python by default.

    Raises:
        DataError: there are no source files, or a part would be empty.
    """
    if not 0 < valid_fraction < 1:
        raise DataError(f"the valid fraction is {valid_fraction}", hint="Give a share between 0 and 1, such as 0.1.")
    root = Path(sysconfig.get_paths()["stdlib"]) if stdlib is None else stdlib
    limit = None if max_mib is None else int(max_mib * 1024 * 1024)
    output.mkdir(parents=True, exist_ok=True)
    counts = {True: [0, 0], False: [0, 0]}
    with replacing(output / "valid.jsonl") as valid, replacing(output / "train.jsonl") as train:
        taken = 0
        for name, text in _texts(root):
            size = len(text.encode())
            if limit is not None and taken + size > limit:
                break
            taken += size
            held_out = _hash(f"part {name}") < valid_fraction  # not the hash of the order, or all would come first
            line = json.dumps({"text": text, "path": name}, ensure_ascii=False) + "\n"
            (valid if held_out else train).write(line.encode())
            counts[held_out][0] += 1
            counts[held_out][1] += size
        if not counts[True][0] or not counts[False][0]:
            raise DataError(
                f"{root}: {counts[False][0]} training and {counts[True][0]} held-out files; both need some",
                hint="Use a Python with its library's source (.py) files, a larger size or another fraction.",
            )
    return Corpus(counts[False][0], counts[False][1], counts[True][0], counts[True][1])


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (path below root, text) in the order of the paths' hashes, without blank and repeated texts."""
    seen: set[bytes] = set()
    names = [path.relative_to(root) for path in root.rglob("*.py")]
    kept = [name.as_posix() for name in names if not _SKIPPED_FOLDERS.intersection(name.parts[:-1])]
    for name in sorted(kept, key=lambda name: (_hash(name), name)):
        try:
            data = (root / name).read_bytes()
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # unreadable or in another encoding: not text for this purpose
        digest = hashlib.sha256(data).digest()
        if text.strip() and digest not in seen:
            seen.add(digest)
            yield name, text


def _hash(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
