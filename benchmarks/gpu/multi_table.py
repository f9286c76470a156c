"""The results of benchmarks/gpu/multi.py as tables of text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from multi_curves import curve_lines, first_rank, reload_lines
from multi_layouts import CONFIGS, VOCABULARY
from multi_predict import NVLINK_BYTES_PER_S, Shape, peak_gib, step_ms
from multi_profile import KINDS

SEQUENCE, MICRO_BATCH = 2048, 8

Results = Mapping[str, Mapping[str, Any]]


def table(results: Results) -> str:
    """Return all tables that there are results for."""
    parts = (_machine, _bandwidth, curve_lines, reload_lines, _kill, _speeds, _failed)
    return "\n".join(line for part in parts for line in part(results))


def _machine(results: Results) -> Iterator[str]:
    found = first_rank(results, "machine")
    if found:
        yield ", ".join(f"{key} {value}" for key, value in found.items())


def _failed(results: Results) -> Iterator[str]:
    for name, result in results.items():
        if "error" in result:
            yield f"FAILED {name} ({result['seconds']} s): {result['error'].strip().splitlines()[-1]}"


def _bandwidth(results: Results) -> Iterator[str]:
    found = first_rank(results, "bandwidth")
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


def _kill(results: Results) -> Iterator[str]:
    found = first_rank(results, "kill")
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
        yield from _kinds_of(results, size)


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


def _kinds_of(results: Results, size: str) -> Iterator[str]:
    """Yield what kernels of each kind take of a step, and the longest times in which nothing computes."""
    rows = {
        f"{name.removeprefix(f'speed {size} ')} {number}": rank
        for name, result in results.items()
        if name.startswith(f"speed {size} ")
        for number, rank in enumerate(result.get("ranks", ()))
        if "kinds_ms" in rank
    }
    if not rows:
        return
    kinds = [*KINDS, "other"]
    columns = [*kinds, "exposed", "idle in", "between", "step"]
    yield f"\n{size}: ms a step on each rank {'':<4}" + "".join(f"{column:>10}" for column in columns)
    for name, rank in rows.items():
        values = [rank["kinds_ms"].get(one, 0.0) for one in kinds]
        values += [rank["exposed_ms"], rank["idle_ms"]["inside"], rank["idle_ms"]["between"], rank["span_ms"]]
        yield f"  {name:<{len(size) + 28}}" + "".join(f"{value:>10.2f}" for value in values)
    for name, rank in rows.items():
        for gap in rank["gaps"][:3]:
            yield (
                f"  {name:<24} {gap['ms']:.2f} ms {gap['where']} step {gap['step']} ({gap['collective_ms']:.2f} of a "
                f"collective): {gap['before']} .. {gap['behind']}"
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
