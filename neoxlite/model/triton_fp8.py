"""Triton kernel of `neoxlite.model.fp8`: cast to fp8 and transpose in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 128


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(x, factor, cast, transposed, rows, columns, LIMIT: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    keep = (row < rows)[:, None] & (column < columns)[None, :]
    scaled = tl.load(x + row[:, None] * columns + column[None, :], mask=keep, other=0.0).to(tl.float32)
    scaled = scaled * (1.0 / tl.load(factor))
    within = tl.minimum(tl.maximum(scaled, -LIMIT), LIMIT)
    small = tl.where(scaled == scaled, within, scaled).to(cast.dtype.element_ty)  # what is no number stays none
    tl.store(cast + row[:, None] * columns + column[None, :], small, mask=keep)
    turned = tl.trans(small)
    tl.store(transposed + column[:, None] * rows + row[None, :], turned, mask=tl.trans(keep))


def cast_and_transpose(x: Tensor, factor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """See `neoxlite.model.fp8`."""
    x = x.contiguous()
    rows, columns = x.shape
    cast = torch.empty(rows, columns, dtype=dtype, device=x.device)
    transposed = torch.empty(columns, rows, dtype=dtype, device=x.device)
    grid = (triton.cdiv(rows, _TILE), triton.cdiv(columns, _TILE))
    _kernel[grid](x, factor, cast, transposed, rows, columns, LIMIT=torch.finfo(dtype).max, TILE=_TILE, num_warps=8)
    return cast, transposed
