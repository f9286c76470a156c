"""The tokenizer's files in a checkpoint, so that text can be generated from the checkpoint alone. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig

FOLDER: Final = "tokenizer"
_KEYS: Final = ("vocab_file", "merge_file")
# What a tokenizer reads of a folder of Hugging Face files, which mostly holds the weights of a model too.
_OF_A_FOLDER: Final = (
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# What stands beside a single file in the folder of a converted model, and that its export needs again.
_BESIDE_A_FILE: Final = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "hf_config.json",
)
_MARK: Final = "hf_config.json"  # written by `neoxlite convert from-hf`
# A tokenizer larger than this is not copied into every checkpoint.
_LIMIT_BYTES: Final = 64 << 20


def tokenizer_files(cfg: NeoxConfig) -> dict[str, bytes]:
    """Return the files to save: name relative to the checkpoint -> content. Built-in vocabularies have none.

    Raises:
        OSError: one has become unreadable since the run began.
    """
    files: dict[str, bytes] = {}
    for key in _KEYS:
        given = getattr(cfg, key)
        path = Path(given) if given else None
        if path is None or not path.exists():
            continue
        parts = [path / name for name in _OF_A_FOLDER] if path.is_dir() else [path]
        if path.is_file() and (path.parent / _MARK).is_file():
            for name in _BESIDE_A_FILE:
                beside = path.parent / name
                if beside.is_file():
                    files[f"{FOLDER}/{name}"] = beside.read_bytes()
        for part in parts:
            if part.is_file() and part.stat().st_size <= _LIMIT_BYTES:
                name = _name(given) if part is path else f"{_name(given)}/{part.name}"
                files[f"{FOLDER}/{name}"] = part.read_bytes()
    return files


def saved_tokenizer(folder: Path, cfg: NeoxConfig) -> dict[str, str]:
    """Return the keys of ``cfg``, as saved in checkpoint ``folder``, whose files it holds itself, and those files."""
    own = {key: folder / FOLDER / _name(getattr(cfg, key)) for key in _KEYS if getattr(cfg, key)}
    return {key: str(path) for key, path in own.items() if path.exists()}


def _name(given: str) -> str:
    """Return the name under which a file or folder is saved; ``.`` and ``..`` have none of their own."""
    name = Path(given).name
    return name if name not in ("", "..") else "folder"
