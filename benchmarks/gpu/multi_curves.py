"""The curves and loaded checkpoints of benchmarks/gpu/multi.py as tables: each beside what it should equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from multi_items import BEHIND, OTHER_CUT, PRECISIONS, same_cut

BOUNDS = {"fp32": 1e-4, "bf16": 1e-2}
"""Largest relative difference of a loss that loaded checkpoints may have, and in fp32 curves."""
TIMES_ANOTHER_CUT = 2
"""What a bf16 curve may have of the distance that another cut of the batch makes on one GPU, in the same call."""
APART = 1e-3
"""Two curves have parted where they differ by more: behind it rounding is amplified. All bf16 curves may have it."""

Results = Mapping[str, Mapping[str, Any]]


def first_rank(results: Results, name: str) -> Mapping[str, Any] | None:
    """Return what the item's first rank returned, if it succeeded."""
    ranks = results.get(name, {}).get("ranks")
    return ranks[0] if ranks else None


def deviation(losses: Sequence[float | None], reference: Sequence[float | None]) -> float:
    """Return the largest relative difference of two curves; infinite where they have no common length or no number."""
    if len(losses) != len(reference):
        return float("inf")
    return max((_apart(one, other) for one, other in zip(losses, reference, strict=True)), default=0.0)


def _apart(one: float | None, other: float | None) -> float:
    return float("inf") if one is None or other is None else abs(one - other) / abs(other)


def together(curves: Sequence[Sequence[float | None]]) -> int:
    """Return for how many iterations no two curves differ by more than `APART`."""
    for count, losses in enumerate(zip(*curves, strict=False)):
        known = [loss for loss in losses if loss is not None]
        if len(known) < len(losses) or _apart(max(known), min(known)) > APART:
            return count
    return min(map(len, curves), default=0)


def curve_lines(results: Results) -> Iterator[str]:
    """Yield the table of each precision: curves against one GPU's whose micro-batches are as large, if there is one."""
    for precision in PRECISIONS:
        prefix = f"curve {precision} "
        found = {
            name.removeprefix(prefix): curve
            for name in results
            if name.startswith(prefix) and (curve := first_rank(results, name))
        }
        if "one" in found:
            yield from _curves(precision, found)


def _curves(precision: str, found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    one = found["one"]["losses"]
    bound, said = _bound(precision, found)
    shared = together([curve["losses"] for curve in found.values()])
    yield (
        f"\n{len(one)} losses in {precision} ({one[0]:.4f} to {one[-1]:.4f}) against one GPU's of the same cut; "
        f"bound {said}\n{'':<34}{'against':<16}{'loss':>10}{f'first {shared}':>10}{'norm':>10}"
    )
    for name, curve in found.items():
        against = same_cut(name) if name != OTHER_CUT and same_cut(name) in found else "one"
        if name == against:
            continue
        losses, reference = curve["losses"], found[against]["losses"]
        loss, norm = deviation(losses, reference), deviation(curve["grad_norms"], found[against]["grad_norms"])
        verdict = "" if bound is None else "ok" if loss <= bound else "TOO FAR"
        if name == OTHER_CUT and precision != "fp32":
            verdict = "makes the bound"
        before = deviation(losses[:shared], reference[:shared])
        yield f"  {name:<32}{against:<16}{loss:>10.1e}{before:>10.1e}{norm:>10.1e}  {verdict}".rstrip()


def _bound(precision: str, found: Mapping[str, Mapping[str, Any]]) -> tuple[float | None, str]:
    if precision == "fp32":
        return BOUNDS[precision], f"{BOUNDS[precision]:g}"
    if OTHER_CUT not in found:
        return None, f"unknown without '{OTHER_CUT}'"
    bound = max(TIMES_ANOTHER_CUT * deviation(found[OTHER_CUT]["losses"], found["one"]["losses"]), APART)
    return bound, f"{bound:.1e}, {TIMES_ANOTHER_CUT} x what another cut makes on one GPU, {APART:g} at least"


def reload_lines(results: Results) -> Iterator[str]:
    """Yield the table of each precision: who wrote, who loaded."""
    for precision in PRECISIONS:
        rows = {
            name: found
            for name in results
            if name.startswith(f"reload {precision} ") and (found := first_rank(results, name))
        }
        if not rows:
            continue
        columns = list(dict.fromkeys(column for found in rows.values() for column in found["losses"]))
        yield (
            f"\n{precision}: checkpoint written by the layout above, loaded by the one on the "
            f"left; {BEHIND} losses behind it against the writer's own, bound {BOUNDS[precision]:g}"
        )
        yield " " * 20 + "".join(f"{column:>15}" for column in columns)
        for name, found in rows.items():
            cells = []
            for column in columns:
                written = first_rank(results, f"written {precision} {column}")
                own = written["losses"][-BEHIND:] if written else []
                far = deviation(found["losses"].get(column, []), own)
                cells.append(f"{far:>13.1e}{' ' if far <= BOUNDS[precision] else '!'} ")
            yield f"  {name.split(' ', 2)[2]:<18}" + "".join(cells)
