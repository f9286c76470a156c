"""Index maps that GPT-NeoX left beside a dataset."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from neoxlite.data.array_file import Array
from neoxlite.data.index_map import IndexMap, sample_starts

if TYPE_CHECKING:
    from neoxlite.data.index_cache import IndexRequest

_LOG = logging.getLogger(__name__)


def read_upstreams(request: IndexRequest) -> IndexMap | None:
    """Return the index map of files that GPT-NeoX left beside the dataset, if they belong to this request.

    Its names do not tell whether they do, so the arrays are compared with the dataset: each document of the split
    occurs as often as the others, the samples tile them, each once. A run that was begun with them goes on in their
    order.
    """
    for stem in upstream_stems(request):
        paths = [Path(f"{stem}_{name}_idx.npy") for name in ("doc", "sample", "shuffle")]
        if not all(path.is_file() for path in paths):
            continue
        try:
            arrays = [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]
            found = _checked(request, *arrays)
        except (OSError, ValueError) as error:
            _LOG.warning("%s_*_idx.npy of GPT-NeoX are not used: %s", stem, error)
            continue
        _LOG.info("using the index maps of GPT-NeoX: %s_*_idx.npy", stem)
        return found
    return None


def upstream_stems(request: IndexRequest) -> list[str]:
    """Return the beginnings of the names of GPT-NeoX's files: of today (ea7aefd8), and of v1.0 and v2.0."""
    stem = (
        f"{request.dataset.prefix}_{request.name}_indexmap_{request.num_samples}ns_{request.seq_length}sl"
        f"_{request.seed}s"
    )
    return [f"{stem}_packedpi_ac", f"{stem}_packedpi", stem]


def _checked(request: IndexRequest, doc_idx: Array, sample_idx: Array, shuffle_idx: Array) -> IndexMap:
    """Return the arrays as an index map. Raises ValueError if they are not one of this request."""
    documents = request.documents
    samples = shuffle_idx.size
    if not all(array.dtype.kind in "iu" for array in (doc_idx, sample_idx, shuffle_idx)):
        raise ValueError("they do not hold whole numbers")
    if sample_idx.shape != (samples + 1, 2) or doc_idx.ndim != 1 or shuffle_idx.ndim != 1 or samples == 0:
        raise ValueError("their shapes do not fit each other")
    epochs, rest = divmod(doc_idx.size, len(documents))
    if rest or not documents.start <= int(doc_idx.min()) <= int(doc_idx.max()) < documents.stop:
        raise ValueError("they are of another split")
    if (np.bincount(doc_idx - documents.start) != epochs).any():
        raise ValueError("documents do not occur equally often")
    starts = sample_starts(request.dataset.sizes, doc_idx, samples, request.seq_length)
    if not np.array_equal(starts, sample_idx) or samples < (request.num_samples or 0):
        raise ValueError("they are of other documents")
    seen = np.zeros(samples, np.bool_)
    if not 0 <= int(shuffle_idx.min()) <= int(shuffle_idx.max()) < samples:
        raise ValueError("the shuffling is damaged")
    seen[shuffle_idx] = True
    if not seen.all():
        raise ValueError("the shuffling is damaged")
    return IndexMap(doc_idx, sample_idx, shuffle_idx, epochs)
