"""Train a byte-level BPE tokenizer, as GPT-2's but with a vocabulary of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from neoxlite.common.files import write_whole
from neoxlite.data.system_errors import writing
from neoxlite.data.text_files import input_files, read_batches
from neoxlite.errors import DataError
from neoxlite.tokenizers import END_OF_TEXT, PADDING
from neoxlite.tokenizers.base import encodable, needed_library

_SPECIAL = (END_OF_TEXT, PADDING)
MIN_VOCAB_SIZE = 256 + len(_SPECIAL)  # every byte has a token, so that any text can be encoded


def train_bpe(
    inputs: Sequence[Path],
    output: Path,
    vocab_size: int,
    *,
    keys: Sequence[str] = ("text",),
    show_progress: bool = False,
    report: Callable[[int], None] = lambda documents: None,
) -> int:
    """Train on the texts of the files and write a ``tokenizer.json`` for HFTokenizer.

    Args:
        inputs: text files, see `read_batches`.
        output: the file to write; its folder is made if missing.
        vocab_size: tokens in all, at least 258: ``<|endoftext|>`` is 0, ``<|padding|>`` 1, then the 256 bytes.
        keys: fields of the JSON objects.
        show_progress: let the library draw its bars on stderr.
        report: called with the documents read, now and then.

    Returns:
        The size of the vocabulary, which is smaller than asked for when the text is short.

    Raises:
        DataError: the size is too small, an input is missing or damaged, or holds no text.
        NeoxliteError: the output cannot be written.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise DataError(
            f"a vocabulary of {vocab_size} is too small",
            hint=f"ask for at least {MIN_VOCAB_SIZE}: 256 bytes and {len(_SPECIAL)} special tokens",
        )
    files = input_files(inputs)
    needed_library("tokenizers", "training a tokenizer", "train")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=show_progress,
    )
    texts = _Texts(files, keys, report)
    tokenizer.train_from_iterator(texts, trainer=trainer)
    if texts.characters == 0:
        raise DataError("the input holds no text", hint="check the input files and --jsonl-keys")
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, tokenizer.to_str(pretty=True))
    size: int = tokenizer.get_vocab_size()
    return size


class _Texts:
    """Iterable of the texts that remembers how much it gave."""

    def __init__(self, inputs: Sequence[Path], keys: Sequence[str], report: Callable[[int], None]) -> None:
        self._inputs, self._keys, self._report = inputs, keys, report
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        documents = 0
        for batch in read_batches(self._inputs, self._keys):
            for column in batch.columns:
                for text in column:
                    self.characters += len(text)
                    yield encodable(text)
            documents += len(batch)
            self._report(documents)
