"""SentencePiece models as tokenizers of the ``tokenizers`` library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from neoxlite.errors import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def backend_of(path: Path) -> Backend:
    """Return what transformers' own converter makes of a .model; whether the ids are the same is for the caller.

    Raises:
        CheckpointError: it cannot convert this model.
    """
    from neoxlite.convert.compare import quiet

    with quiet():
        try:
            from transformers.convert_slow_tokenizer import SpmConverter

            class _Slow:
                vocab_file = str(path)

            converter: Any = SpmConverter
            made = converter(_Slow())
            made.handle_byte_fallback = _has_bytes(path)
            backend: Backend = made.converted()
        except Exception as error:  # a library is missing, or the model is of a kind that it does not know
            raise CheckpointError(
                f"{path}: transformers cannot convert this SentencePiece model: {str(error).splitlines()[0]}",
                hint="omit the tokenizer with --no-tokenizer and copy the .model beside the export",
                exit_code=2,
            ) from None
    if made.handle_byte_fallback:
        from tokenizers import decoders

        # Bytes of a character that is no piece come together again; the blank before the text goes.
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        backend.decoder = decoders.Sequence(steps)
    return backend


def _has_bytes(path: Path) -> bool:
    """Tell whether the model writes characters that it does not know by their bytes."""
    from sentencepiece import SentencePieceProcessor

    return bool(SentencePieceProcessor(model_file=str(path)).piece_to_id("<0x00>") > 0)
