"""Corpora by name, in the folders and under the file names of GPT-NeoX's prepare_data.py."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neoxlite.common.files import replacing
from neoxlite.data.gpt2_files import write_gpt2_files
from neoxlite.data.preprocess import Options, Progress, output_prefix, tokenize_files
from neoxlite.data.python_source import collect_python
from neoxlite.data.system_errors import writing
from neoxlite.errors import DataError, NeoxliteError
from neoxlite.tokenizers import Tokenizer, build_tokenizer

STDLIB: Final = "stdlib"
_TIMEOUT_S: Final = 60


@dataclass(frozen=True)
class Corpus:
    """A corpus that has a source.

    Attributes:
        urls: of its files.
        about: in a few words.
    """

    urls: tuple[str, ...]
    about: str


CORPORA: Final = {
    "enwik8": Corpus(("http://mattmahoney.net/dc/enwik8.zip",), "the first 10^8 bytes of an English Wikipedia"),
    "openwebtext2": Corpus(
        ("https://huggingface.co/datasets/segyges/OpenWebText2/resolve/main/openwebtext2.jsonl.zst.tar",),
        "17 million web pages",
    ),
}
# GPT-NeoX's other names (tools/datasets/corpora.py at ea7aefd8), of whose addresses many no longer answer.
_WITHOUT_SOURCE: Final = frozenset(
    {
        "enron",
        "pile_subset",
        "pile",
        "github",
        "arxiv",
        "europarl",
        "freelaw",
        "nih",
        "pubmed",
        "books1",
        "books3",
        "hackernews",
        "stackexchange",
        "ubuntu_irc",
        "youtube_subtitles",
        "c4",
        "c4_openwebtext",
    }
)


@dataclass(frozen=True)
class Prepared:
    """Datasets that were made, by the prefix that data_path names, and how that went."""

    prefixes: tuple[str, ...]
    runs: tuple[Progress, ...]


def prepare_corpus(
    name: str,
    folder: Path,
    tokenizer_type: str,
    *,
    vocab_file: str | None = None,
    merge_file: str | None = None,
    download: bool = False,
    again: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Prepared:
    """Make the dataset ``folder/name/name_text_document`` of a corpus.

    With GPT2BPETokenizer and no files given, GPT-2's vocabulary is written to ``folder`` as upstream does. "stdlib",
    the Python files of this machine, needs no network and gives a second dataset, ``stdlib_valid_text_document``.

    Args:
        folder: of all corpora; made if missing.
        vocab_file, merge_file: of the tokenizer.
        download: fetch files that are not there.
        again: fetch files also where they are there.
        report: called while tokenizing.

    Raises:
        DataError: the corpus is unknown or has no source, its files are not there or damaged, or the tokenizer's are.
        NeoxliteError: the folder cannot be written, or a download fails.
    """
    if name != STDLIB and name not in CORPORA:
        raise _unknown(name)
    own = folder / name
    with writing(own):
        own.mkdir(parents=True, exist_ok=True)
    if tokenizer_type.lower() == "gpt2bpetokenizer" and not vocab_file and not merge_file:
        write_gpt2_files(folder)
    tokenizer = build_tokenizer(tokenizer_type, vocab_file, merge_file)
    parts = _stdlib_parts(own) if name == STDLIB else {name: _files_of(name, own, download=download, again=again)}
    options = Options(append_eod=True, tokenizer_type=tokenizer_type)
    runs = [_tokenized(own / part, files, tokenizer, options, report) for part, files in parts.items()]
    return Prepared(tuple(output_prefix(str(own / part), "text") for part in parts), tuple(runs))


def _tokenized(
    prefix: Path, files: list[Path], tokenizer: Tokenizer, options: Options, report: Callable[[Progress], None]
) -> Progress:
    try:
        return tokenize_files(files, str(prefix), tokenizer, options, report=report)
    except DataError as error:  # its hint names options of `neoxlite tokenize`
        hint = None if prefix.parent.name == STDLIB else "fetch it again, with -f, or put a complete file in its place"
        raise DataError(error.message, hint=hint) from error


def _stdlib_parts(own: Path) -> dict[str, list[Path]]:
    collect_python(own)
    return {STDLIB: [own / "train.jsonl"], f"{STDLIB}_valid": [own / "valid.jsonl"]}


def _files_of(name: str, own: Path, *, download: bool, again: bool) -> list[Path]:
    files = []
    for url in CORPORA[name].urls:
        path = own / url.rpartition("/")[2]
        if again or not path.is_file():
            if not download:
                raise DataError(
                    f"{name}: {path} is not there",
                    hint=f"where there is internet, add --download, or save {url} as that file",
                )
            _fetch(url, path)
        files.append(path)
    return files


def _fetch(url: str, path: Path) -> None:
    """Download a file, whole or not at all."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer, writing(path), replacing(path) as file:  # noqa: S310 - from the table
            shutil.copyfileobj(answer, file, 1 << 20)
            expected = answer.headers.get("Content-Length")
            if expected is not None and file.tell() != int(expected):
                raise NeoxliteError(f"{url}: {file.tell()} of {expected} bytes came", hint="try again")
    except urllib.error.URLError as error:
        raise NeoxliteError(
            f"{url} cannot be downloaded: {error.reason}",
            hint=f"compute nodes often have no internet: run this on a login node, or save the file as {path}",
        ) from error
    except OSError as error:  # the connection broke in the middle
        raise NeoxliteError(f"{url} cannot be downloaded: {error}", hint="try again") from error


def _unknown(name: str) -> DataError:
    known = ", ".join((*CORPORA, STDLIB))
    if name in _WITHOUT_SOURCE:
        return DataError(
            f"{name}: there is no source for this corpus",
            hint=f"tokenize a copy of yours with `neoxlite tokenize`; with a source: {known}",
        )
    return DataError(f"corpus {name!r} is unknown", hint=f"known: {known}")
