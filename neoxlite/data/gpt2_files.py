"""GPT-2's vocabulary as the two files that GPT-NeoX's configurations name."""

from __future__ import annotations

from pathlib import Path

from neoxlite.common.files import write_whole
from neoxlite.data.system_errors import writing
from neoxlite.tokenizers.gpt2_vocabulary import MERGES_FILE, vocabulary_json


def write_gpt2_files(folder: Path) -> tuple[Path, Path]:
    """Write gpt2-vocab.json and gpt2-merges.txt into a folder, which is made if missing, and return their paths.

    Raises:
        NeoxliteError: the folder cannot be written.
    """
    vocab_file, merge_file = folder / "gpt2-vocab.json", folder / "gpt2-merges.txt"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(vocab_file, vocabulary_json())
        write_whole(merge_file, MERGES_FILE.read_bytes())
    return vocab_file, merge_file
