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
            backend: Backend = converter(_Slow()).converted()
        except Exception as error:  # a library is missing, or the model is of a kind that it does not know
            raise CheckpointError(
                f"{path}: transformers cannot convert this SentencePiece model: {str(error).splitlines()[0]}",
                hint="leave the tokenizer out with --no-tokenizer and copy the .model beside the export",
            ) from None
    return backend
