"""The results of benchmarks/gpu/multi.py as tables of text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from multi_items import BEHIND, PRECISIONS
from multi_layouts import CONFIGS, VOCABULARY
from multi_predict import NVLINK_BYTES_PER_S, Shape, peak_gib, step_ms

BOUNDS = {"fp32": 1e-4, "bf16": 1e-2}
"""Largest relative difference of a loss from the reference's that the curves and loaded checkpoints may have."""
SEQUENCE, MICRO_BATCH = 2048, 8

Results = Mapping[str, Mapping[str, Any]]


def table(results: Results) -> str:
    """Return all tables that there are results for."""
    parts = (_machine, _bandwidth, _curves, _reloads, _kill, _speeds, _failed)
    return "\n".join(line for part in parts for line in part(results))


def _found(results: Results, name: str) -> Mapping[str, Any] | None:
    """Return what the item's first rank returned, if it succeeded."""
    ranks = results.get(name, {}).get("ranks")
    return ranks[0] if ranks else None


def _machine(results: Results) -> Iterator[str]:
    found = _found(results, "machine")
    if found:
        yield ", ".join(f"{key} {value}" for key, value in found.items())


def _failed(results: Results) -> Iterator[str]:
    for name, result in results.items():
        if "error" in result:
            yield f"FAILED {name} ({result['seconds']} s): {result['error'].strip().splitlines()[-1]}"


def _bandwidth(results: Results) -> Iterator[str]:
    found = _found(results, "bandwidth")
    if not found:
        return
    yield f"\nbus bandwidth, GB/s ({found['transport']}; expected of large messages {NVLINK_BYTES_PER_S / 1e9:.0f})"
    kinds = ("all_reduce", "reduce_scatter", "all_gather")
    yield f"{'MiB':>8}" + "".join(f"{kind:>16}" for kind in kinds)
    by_size: dict[int, dict[str, float]] = {}
    for row in found["rows"]:
        by_size.setdefault(row["bytes"], {})[row["collective"]] = row["busbw_gb_s"]
    for size, row in by_size.items():
        yield f"{size / 2**20:>8.3g}" + "".join(f"{row[kind]:>16.1f}" for kind in kinds)


def deviation(losses: list[float], reference: list[float]) -> float:
    """Return the largest relative difference of two curves; infinite where they have no common length or no number."""
    if len(losses) != len(reference) or None in losses or None in reference:
        return float("inf")
    return max(abs(one - other) / abs(other) for one, other in zip(losses, reference, strict=True))


def _curves(results: Results) -> Iterator[str]:
    for precision in PRECISIONS:
        reference = _found(results, f"curve {precision} one")
        if not reference:
            continue
        yield (
            f"\n{len(reference['losses'])} losses in {precision} against one GPU's ({reference['losses'][0]:.4f} to "
            f"{reference['losses'][-1]:.4f}); bound {BOUNDS[precision]:g}"
        )
        for name in results:
            found = _found(results, name)
            if not name.startswith(f"curve {precision} ") or not found or found is reference:
                continue
            loss = deviation(found["losses"], reference["losses"])
            norm = deviation(found["grad_norms"], reference["grad_norms"])
            verdict = "ok" if loss <= BOUNDS[precision] else "TOO FAR"
            yield f"  {name.split(' ', 2)[2]:<24} loss {loss:.2e}   gradient norm {norm:.2e}   {verdict}"


def _reloads(results: Results) -> Iterator[str]:
    for precision in PRECISIONS:
        rows = {
            name: found
            for name in results
            if name.startswith(f"reload {precision} ") and (found := _found(results, name))
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
                written = _found(results, f"written {precision} {column}")
                own = written["losses"][-BEHIND:] if written else []
                far = deviation(found["losses"].get(column, []), own)
                cells.append(f"{far:>13.1e}{' ' if far <= BOUNDS[precision] else '!'} ")
            yield f"  {name.split(' ', 2)[2]:<18}" + "".join(cells)


def _kill(results: Results) -> Iterator[str]:
    found = _found(results, "kill")
    if not found:
        return
    yield (
        f"\nSIGKILL of rank {found['killed']['rank']} in a step: its {found['killed']['processes']} processes gone in "
        f"{found['gone_s']:.1f} s; resumed from {found['resumed_from']}, {found['compared']} losses "
        + ("equal bit for bit" if found["resumed_equal"] else f"differ by up to {found['largest_difference']:.1e}")
    )
    yield found["explain_text"].strip()


# Speed


def _speeds(results: Results) -> Iterator[str]:
    sizes = dict.fromkeys(name.split()[1] for name in results if name.startswith("speed "))
    for size in sizes:
        yield from _speed_of(results, size)


def _shape(size: str) -> Shape | None:
    if size == "tiny":
        return None
    values = yaml.safe_load((CONFIGS / f"{size}.yml").read_text())
    return Shape(values["num_layers"], values["hidden_size"], VOCABULARY, SEQUENCE, MICRO_BATCH)


def _speed_of(results: Results, size: str) -> Iterator[str]:
    rows = {
        name.removeprefix(f"speed {size} "): result["ranks"]
        for name, result in results.items()
        if name.startswith(f"speed {size} ") and "ranks" in result
    }
    yield (
        f"\n{size}: {'variant':<18}{'tokens/s':>10}{'ms/step':>10}{'expected':>10}{'n x one':>9}{'expected':>10}"
        f"{'n x own':>9}{'comm ms':>9}{'exposed':>9}{'peak GiB by rank':>20}{'expected':>10}"
    )
    own = {"DDP": rows.get("one, DDP"), "deepspeed": rows.get("one, deepspeed")}
    one = _tokens_per_ms(rows["one"]) if "one" in rows else None
    one_ms = _ms(rows["one"]) if "one" in rows else None
    for name, ranks in rows.items():
        engine, n = name.split(", ")[1] if ", " in name else "", len(ranks)
        ms, speed = _ms(ranks), _tokens_per_ms(ranks)
        alone = own.get(engine)
        expected_ms, expected_gib = _expected(size, name, n, engine, one_ms)
        expected = ranks[0]["tokens"] / expected_ms if expected_ms and "tokens" in ranks[0] else None
        peaks = "/".join(f"{rank['peak_gib']:.1f}" for rank in ranks if "peak_gib" in rank)
        # The rank that waits longer counts its wait as communication.
        comm, exposed = (min(rank.get(key, 0) for rank in ranks) for key in ("collectives_ms", "exposed_ms"))
        yield (
            f"{'':{len(size) + 2}}{name:<18}{speed * 1000:>10,.0f}{ms:>10.1f}"
            f"{f'{expected_ms:.1f}' if expected_ms else '':>10}{_share(speed, n, one):>9}{_share(expected, n, one):>10}"
            f"{_share(speed, n, _tokens_per_ms(alone) if alone else None):>9}"
            f"{comm:>9.1f}{exposed:>9.1f}{peaks:>20}{expected_gib:>10}"
        )


def _ms(ranks: list[Mapping[str, Any]]) -> float:
    return statistics.median(_timed(ranks[0]["ms"]))


def _tokens_per_ms(ranks: list[Mapping[str, Any]]) -> float:
    """Return the speed of the steps that count; of results without their tokens, what the log said."""
    first = ranks[0]
    return float(first["tokens"] / _ms(ranks) if "tokens" in first else first["tokens_per_s"] / 1000)


def _share(speed: float | None, n: int, one: float | None) -> str:
    """Return the part of ``n`` times another speed."""
    return f"{speed / n / one:.1%}" if speed and one and n > 1 else ""


def _timed(ms: list[float]) -> list[float]:
    """Leave out the first entries, which compile, and the last two, whose steps are profiled."""
    return ms[len(ms) // 3 : -2] if len(ms) > 5 else ms[max(1, len(ms) // 3) : -1] if len(ms) > 3 else ms[-1:]


def _expected(size: str, name: str, n: int, engine: str, one_ms: float | None) -> tuple[float | None, str]:
    shape = _shape(size)
    if shape is None:
        return None, ""
    layout: dict[str, int] = {}
    steps = 1
    if name.startswith("tp"):
        layout["tensor"] = n
    elif name.startswith("pp"):
        layout["stages"], steps = n, 16
    else:
        layout["data"] = n
    kind = {"DDP": "ddp", "deepspeed": "deepspeed"}.get(engine, "direct")
    gib = f"{peak_gib(shape, engine=kind, steps=steps, **layout):.1f}"
    if n == 1 or one_ms is None:
        return None, gib
    return step_ms(shape, one_ms, engine=kind, steps=steps, **layout), gib
