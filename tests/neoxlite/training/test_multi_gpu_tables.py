"""The tables of the script that measures several GPUs (benchmarks/gpu/multi.py), from numbers made by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "gpu"))

from multi_profile import Kernel, exposure, kind, short, steps_of
from multi_table import table


def test_table_of_curves() -> None:
    """Another cut makes 1 %, so the bound is 2 %; two replicas are 0.1 % from their own cut, 1.1 % from it."""

    def curve(*losses: float) -> dict[str, Any]:
        return {"ranks": [{"losses": losses, "grad_norms": [1.0] * len(losses)}], "seconds": 1.0}

    known = {"curve bf16 one": curve(4.0, 2.0, 1.0), "curve bf16 one, other cut": curve(4.0004, 2.0, 1.01)}
    known |= {"curve bf16 dp2 z1": curve(4.0, 2.0, 1.01101), "curve bf16 tp2": curve(4.0, 1.95, 1.0)}
    title, heads, *rows = table(known).strip().splitlines()
    assert "bound 2.0e-02" in title
    assert "first 1 " in heads, "tp2 and one differ by 2.5 % at the second"
    cells = [row.split() for row in rows]
    assert cells[0] == ["one,", "other", "cut", "one", "1.0e-02", "1.0e-04", "0.0e+00", "makes", "the", "bound"]
    assert cells[1] == ["dp2", "z1", "one,", "other", "cut", "1.0e-03", "1.0e-04", "0.0e+00", "ok"]
    assert cells[2] == ["tp2", "one", "2.5e-02", "0.0e+00", "0.0e+00", "TOO", "FAR"]
    near = {**known, "curve bf16 one, other cut": curve(4.0, 2.0, 1.0001)}
    assert "bound 1.0e-03" in table(near), "which bf16 makes"
    del known["curve bf16 one, other cut"]
    assert "bound unknown" in table(known)
    fp32 = {name.replace("bf16", "fp32"): one for name, one in known.items()}
    fp32["curve fp32 pp2"] = curve(4.0, 2.0001, 1.0)
    verdicts = [row.split("  ")[-1] for row in table(fp32).splitlines()[3:]]
    assert verdicts == ["TOO FAR", "TOO FAR", "ok"], "5e-5 of 1e-4"


def test_table_of_speeds() -> None:
    """Of the steps that count, beside n times one GPU and beside its own variant alone."""

    def row(ms: float, tokens: int, ranks: int) -> dict[str, Any]:
        return {"ranks": [{"ms": [999.0, ms, ms, ms, 999.0, 999.0], "tokens": tokens}] * ranks, "seconds": 1.0}

    known = {"speed tiny one": row(100, 1000, 1), "speed tiny one, DDP": row(125, 1000, 1)}
    known |= {"speed tiny dp2, DDP": row(125, 1900, 2), "speed tiny tp2": row(80, 1000, 2)}
    cells = {line.split("  ")[3]: line.split() for line in table(known).splitlines() if line.startswith("      ")}
    assert cells["dp2, DDP"][2:] == ["15,200", "125.0", "76.0%", "95.0%", "0.0", "0.0"]
    assert cells["tp2"][1:] == ["12,500", "80.0", "62.5%", "0.0", "0.0"]


def test_what_other_kernels_hide() -> None:
    """Two collectives of 4 and 2 ms, of which computing leaves 1 and 2 uncovered."""
    found = exposure([(1.0, 5.0), (10.0, 12.0)], [(0.0, 3.0), (4.0, 8.0)])
    assert found == {"collectives": 6.0, "compute": 7.0, "exposed": 3.0, "span": 12.0}


def test_steps_by_their_marks() -> None:
    """Three steps of 10 ms, 2 ms apart, of which the first is not counted: by hand what computes, waits and is idle."""
    kernels = []
    for begin in (0.0, 12.0, 24.0):
        for name, first, last in (
            ("spin_kernel(long)", 0, 0),
            ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTN", 1, 5),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 4, 8),
            ("_adamw_flat", 9, 10),
            ("spin_kernel(long)", 10, 10),
        ):
            kernels.append(Kernel(name, begin + first, begin + last))
    found = steps_of(kernels)
    assert found["profiled_steps"] == 2
    assert found["span_ms"] == 12
    assert found["kinds_ms"] == {"matmul": 4, "optimizer": 1}
    assert found["kernels_ms"] == {"ncclDevKernel_SendRecv": 4}
    assert (found["compute_ms"], found["collectives_ms"], found["exposed_ms"]) == (5, 4, 3)
    assert found["idle_ms"] == {"inside": 2, "between": 2}
    first, second, *_ = found["gaps"]
    assert first == {
        "ms": 4.0,
        "collective_ms": 3.0,
        "before": "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTN",
        "behind": "_adamw_flat",
        "step": 0,
        "where": "inside",
    }
    assert second["step"] == 1
    assert steps_of(kernels[:-1]) == {}, "a mark is missing"
    behind_the_first = [gap for gap in found["gaps"] if gap["where"] == "between"]
    assert [(gap["ms"], gap["before"], gap["behind"]) for gap in behind_the_first] == [
        (3.0, "", "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTN"),
        (3.0, "_adamw_flat", "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTN"),
    ]


@pytest.mark.parametrize(
    ("name", "expected_kind", "expected_short"),
    [
        ("triton_red_fused__to_copy_add_native_layer_norm_0", "fused", None),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x64_cga1x1x1_kernel0_0",
            "attention",
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<1>, at::native::(anonymous namespace)::LpNormFunctor<float, (at::native::NormType)1, "
            "float, 1, 1, 0>, float*, int>(int)",
            "optimizer",
            "multi_tensor_apply_kernel:LpNormFunctor",
        ),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
            "::{lambda()#3}>(int)",
            "copies",
            "unrolled_elementwise_kernel:direct_copy_kernel_cuda",
        ),
        ("Memcpy HtoD (Pinned -> Device)", "copies", "Memcpy HtoD "),
        ("void splitKreduce_kernel<32, 16, int>(cublasSplitKParams<float>)", "matmul", "splitKreduce_kernel"),
        ("indexSelectLargeIndex", "other", None),
    ],
)
def test_kinds_of_kernels(name: str, expected_kind: str, expected_short: str | None) -> None:
    """Names as CUDA's libraries and torch give them."""
    assert kind(name) == expected_kind
    assert short(name) == (expected_short or name)


def test_table_of_kinds() -> None:
    """A row a rank, and its longest gaps."""
    gap = {"ms": 2.5, "collective_ms": 2.0, "before": "a", "behind": "b", "step": 3, "where": "between"}
    rank = {"ms": [10.0], "kinds_ms": {"matmul": 7.0, "other": 1.0}, "exposed_ms": 0.5, "span_ms": 10.0, "gaps": [gap]}
    rank["idle_ms"] = {"inside": 0.25, "between": 1.25}
    known = {"speed tiny dp2": {"ranks": [{**rank, "tokens": 10}, rank], "seconds": 1.0}}
    lines = table(known).splitlines()
    row = next(line for line in lines if line.startswith("  dp2 1 "))
    assert row.split() == [
        "dp2",
        "1",
        "0.00",
        "0.00",
        "7.00",
        "0.00",
        "0.00",
        "0.00",
        "0.00",
        "1.00",
        "0.50",
        "0.25",
        "1.25",
        "10.00",
    ]
    assert lines[-1].split() == [
        "dp2",
        "1",
        "2.50",
        "ms",
        "between",
        "step",
        "3",
        "(2.00",
        "of",
        "a",
        "collective):",
        "a",
        "..",
        "b",
    ]
