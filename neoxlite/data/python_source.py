"""Real text that every machine has: the source files of the running Python's own standard library."""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neoxlite.common.files import replacing
from neoxlite.data.system_errors import writing
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
        NeoxliteError: the folder cannot be written.
    """
    if not 0 < valid_fraction < 1:
        raise DataError(f"the valid fraction is {valid_fraction}", hint="give a share between 0 and 1, such as 0.1")
    root = Path(sysconfig.get_paths()["stdlib"]) if stdlib is None else stdlib
    limit = None if max_mib is None else int(max_mib * 1024 * 1024)
    parts = {True: _Part(), False: _Part()}
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
        with replacing(output / "valid.jsonl") as valid, replacing(output / "train.jsonl") as train:
            for name, text in _texts(root, limit):
                held_out = _hash(f"part {name}") < valid_fraction  # not the hash of the order, or all would come first
                line = json.dumps({"text": text, "path": name}, ensure_ascii=False) + "\n"
                (valid if held_out else train).write(line.encode())
                parts[held_out].add(text)
            if not parts[True].files or not parts[False].files:
                raise DataError(
                    f"{root}: {parts[False].files} training and {parts[True].files} held-out files; both need some",
                    hint="use a Python with its library's source (.py) files, a larger size or another fraction",
                )
    return Corpus(parts[False].files, parts[False].bytes, parts[True].files, parts[True].bytes)


@dataclass
class _Part:
    files: int = 0
    bytes: int = 0

    def add(self, text: str) -> None:
        self.files += 1
        self.bytes += len(text.encode())


def _texts(root: Path, limit: int | None) -> Iterator[tuple[str, str]]:
    """Yield (path below root, text) in the order of the paths' hashes, without blank and repeated texts.

    Stops before the first text that would make more than ``limit`` bytes.
    """
    seen: set[bytes] = set()
    taken = 0
    names = [path.relative_to(root) for path in root.rglob("*.py")]
    kept = [name.as_posix() for name in names if not _SKIPPED_FOLDERS.intersection(name.parts[:-1])]
    for name in sorted(kept, key=lambda name: (_hash(name), name)):
        try:
            data = (root / name).read_bytes()
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # unreadable or in another encoding: not text for this purpose
        digest = hashlib.sha256(data).digest()
        if not text.strip() or digest in seen:
            continue
        seen.add(digest)
        taken += len(data)
        if limit is not None and taken > limit:
            return
        yield name, text


def _hash(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
