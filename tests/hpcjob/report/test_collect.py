"""From lines of logs to attempts: every trainer's shape, restarts, copies, ranks, damaged lines."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from hpcjob.logs.lines import LineParser
from hpcjob.logs.sources import classify
from hpcjob.report.attempts import Log
from hpcjob.report.collect import gather, read_log, seconds
from hpcjob.report.runs import make_run
from tests.hpcjob.report.written import HEAD, loaded, neox_line, saved, write


def of(text: str) -> Log:
    """Return what a text tells."""
    parser = LineParser("job.log", hosts=set())
    return gather(parser.parse(place, line.encode()) for place, line in enumerate(text.split("\n")))


def series(log: Log, name: str) -> list[tuple[int, float]]:
    steps, values = make_run("run", log).table.series(name)
    return list(zip(steps.tolist(), values.tolist(), strict=True))


# Lines as in the field notes; the numbers expected are those that stand in them.
SHAPES = {
    "neox": (
        neox_line(100, "7.123458E+00"),
        100,
        {"loss": 7.123458, "lr": 1e-4, "samples_per_s": 27.346, "tflops": 8.5},
    ),
    "deepspeed": (
        "steps: 10 loss: 9.1234 iter time (s): 1.170 samples/sec: 27.345",
        10,
        {"loss": 9.1234, "iteration_time_ms": 1170.0, "samples_per_s": 27.345},
    ),
    "megatron": (
        " [2026-01-01 12:00:00.123456] iteration      122/  250000 | consumed samples:       124928 | elapsed time per"
        " iteration (ms): 865.4 | throughput per GPU (TFLOP/s/GPU): 430.1 | learning rate: 1.500000E-04 | global batch"
        " size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 | num zeros: 0 | params norm: 1200.0"
        " | number of skipped iterations:   0 | number of nan iterations:   0 |",
        122,
        {"loss": 2.50422, "lr": 1.5e-4, "grad_norm": 0.231, "iteration_time_ms": 865.4, "tflops": 430.1},
    ),
    "torchtitan": (
        "[titan] 2025-06-01 12:00:00,000 - root - INFO - step: 10  loss:  7.1234  grad_norm: 1.2345  memory: 60.12GiB"
        "(75.90%)  tps: 6,667  tflops: 386.12  mfu: 39.04%",
        10,
        {"loss": 7.1234, "grad_norm": 1.2345, "memory_gib": 60.12, "tokens_per_s": 6667.0, "mfu_percent": 39.04},
    ),
    "nanogpt": (
        "iter 1631: loss 4.0863, time 561.94ms, mfu 25.00%",
        1631,
        {"loss": 4.0863, "iteration_time_ms": 561.94},
    ),
    "llm.c": (
        "step    1/19560 | loss 10.955029 (+nanz)| norm 15.3384 (+nanz)| lr 8.57e-07 | 300.00 ms | 50.0% bf16 MFU |"
        " 1700000 tok/s",
        1,
        {"loss": 10.955029, "grad_norm": 15.3384, "lr": 8.57e-07, "tokens_per_s": 1700000.0},
    ),
    "json": (
        '{"iteration": 7, "loss": 2.25, "lr": 0.5, "grad_norm": null, "loss_scale": null, "tokens_per_s": 8}',
        7,
        {"loss": 2.25, "lr": 0.5, "tokens_per_s": 8.0},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_trainer(name: str) -> None:
    """Each shape gives the numbers that stand in its line."""
    line, step, told = SHAPES[name]
    log = of(line)
    for quantity, value in told.items():
        assert series(log, quantity) == [(step, pytest.approx(value, rel=1e-12))], quantity


def test_json_tells_what_is_not_finite() -> None:
    """Null is a number that is not finite; as a loss scale it says that there is none."""
    log = of(SHAPES["json"][0])
    [(step, value)] = series(log, "grad_norm")
    assert (step, math.isnan(value)) == (7, True)
    assert series(log, "loss_scale") == []
    assert series(of('{"iteration": 7, "loss": null, "lr": 1.0, "skipped": 10}'), "loss") == []


def test_lines_that_upstream_printed() -> None:
    """GPT-NeoX's own lines, with the inputs they were printed from: a skipped interval tells no loss, NaN is told."""
    golden = json.loads((Path(__file__).parents[2] / "golden" / "logs" / "log_lines.json").read_text())
    for case in golden["iteration_line"]:
        inputs, log = case["inputs"], of(case["line"])
        assert series(log, "lr") == [(inputs["iteration"], pytest.approx(inputs["learning_rate"], rel=1e-3))]
        rows = [float(text) for place, text in enumerate(inputs["losses"]) if place not in inputs["skipped_positions"]]
        found = [loss for _, loss in series(log, "loss")]
        assert found == ([pytest.approx(sum(rows) / len(rows), rel=1e-5, nan_ok=True)] if rows else [])
        scale = [loss for _, loss in series(log, "loss_scale")]
        assert scale == ([inputs["loss_scale"]] if inputs["precision"] == "fp16" else [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "no numbers",
        '{"iteration": "x", "loss": []}',
        '{"iteration": 3}',
        '{"loss": 1.0}',
        "{" * 9000,
        "\0\x1b[31m",
        '{"iteration": -4, "loss": 1.0}',
        '{"iteration": 99999999999999999999999, "loss": 1.0}',
    ],
)
def test_nothing_to_read(text: str) -> None:
    """Lines without iterations, or with wrong types, give no attempt and no error."""
    assert make_run("run", of(text)).table.steps.tolist() == []


def test_tokens_by_the_sequence_length() -> None:
    """Tokens a second are samples a second times the sequence length that the log lists."""
    assert series(of(HEAD + neox_line(1, "2.0")), "tokens_per_s") == [(1, 27.346 * 2048)]
    assert series(of(neox_line(1, "2.0")), "tokens_per_s") == []


def test_two_lines_of_one_iteration() -> None:
    """DeepSpeed's line and the trainer's are one row; what only one of them tells stays."""
    log = of("steps: 100 loss: 9.1234 iter time (s): 1.170 samples/sec: 20.5\n" + neox_line(100, "7.5", rate="27.5"))
    assert (series(log, "loss"), series(log, "samples_per_s")) == ([(100, 7.5)], [(100, 27.5)])
    assert len(log.attempts) == 1


def test_a_restart_in_one_log() -> None:
    """A requeued job goes on in its log: the later iterations stand, and the restart is known."""
    text = "".join(neox_line(i, f"{i}.5") for i in (10, 20, 30)) + saved(20) + loaded(20)
    run = make_run("run", of(text + "".join(neox_line(i, f"{i}.25") for i in (30, 40))))
    assert run.table.series("loss")[1].tolist() == [10.5, 20.5, 30.25, 40.25]
    assert [(one.at, one.repeated) for one in run.restarts] == [(20, 10)]
    assert (run.checkpoints, run.attempts.tolist()) == ([20], [1, 1, 2, 2])


def test_a_restart_that_goes_on_exactly() -> None:
    """The iteration does not go back where the checkpoint was the last one; loading it is what tells."""
    run = make_run("run", of(neox_line(10, "1.5") + loaded(10) + neox_line(20, "2.5")))
    assert [(one.at, one.repeated) for one in run.restarts] == [(10, 0)]
    assert len(run.table) == 2


def test_ranks_that_load_late() -> None:
    """Every rank says that it loaded; that one says it after the first iteration is no restart."""
    run = make_run("run", of(loaded(10) + neox_line(20, "1.5") + loaded(10) + neox_line(30, "2.5")))
    assert run.restarts == []


def test_copies_are_no_restart(tmp_path: Path) -> None:
    """Rank 0's lines stand in the job's log and in a file of its own, restarts among them."""
    lines = [neox_line(i, f"{i}.5") for i in (10, 20, 30)] + [neox_line(i, f"{i}.25") for i in (20, 30, 40)]
    one, two = write(tmp_path / "1_job.out", lines), write(tmp_path / "1_sched.out", lines)
    run = make_run("run", read_log([classify(one), classify(two)]))
    assert [one.at for one in run.restarts] == [10]
    assert run.table.series("loss")[1].tolist() == [10.5, 20.25, 30.25, 40.25]


def test_several_ranks() -> None:
    """Of ranks that print iterations one is taken, and that is said."""
    text = "".join(f"[rank{rank}]: " + neox_line(i, f"{i}.{rank}").lstrip() for i in (1, 2, 3) for rank in (0, 1))
    log = of(text + "[rank1]: " + neox_line(4, "4.1").lstrip())
    assert series(log, "loss") == [(1, 1.1), (2, 2.1), (3, 3.1), (4, 4.1)]
    assert log.notes == ["the iterations of rank 1 are shown; 1 other ranks print some too"]


def test_hugging_face() -> None:
    """Its dictionaries tell epochs: the entries are numbered; its last word, a mean, is none of them."""
    text = (
        "{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.1}\n"
        "{'loss': 2.25, 'grad_norm': 1.0, 'learning_rate': 4e-05, 'epoch': 0.2}\n"
        "{'eval_loss': 2.125, 'eval_runtime': 1.5, 'epoch': 0.2}\n"
        "{'train_runtime': 12.5, 'train_samples_per_second': 3.2, 'train_loss': 2.375, 'epoch': 0.2}\n"
    )
    run = make_run("run", of(text))
    assert (run.by_epoch, run.table.steps.tolist()) == (True, [1, 2])
    assert (run.table.series("loss")[1].tolist(), run.validations) == ([2.5, 2.25], {2: 2.125})
    assert run.notes == ["the log reports epochs, not iterations: its entries are numbered"]
    again = make_run("run", of(text + text.replace("2.25", "1.75").replace("2.5", "1.5")))
    assert again.table.series("loss")[1].tolist() == [1.5, 1.75]
    assert [(one.at, one.repeated) for one in again.restarts] == [(0, 2)]


def test_memory_line() -> None:
    """Memory stands on a line of its own, after the first iteration or before it."""
    memory = "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1024.0 | max allocated: 2048.0 | reserved: 1.0\n"
    assert series(of(neox_line(1, "2.0") + memory + neox_line(2, "2.0")), "memory_gib") == [(1, 2.0)]
    assert series(of(memory + neox_line(1, "2.0")), "memory_gib") == [(1, 2.0)]


def test_deepspeed_alone() -> None:
    """Without a trainer's lines DeepSpeed's own tell the learning rate."""
    text = "".join(f"[Rank 0] step={i}, skipped=0, lr=[{i}e-05, 1e-05], mom=[(0.9, 0.95)]\n" for i in (10, 20))
    assert series(of(text), "lr") == [(10, 10e-05), (20, 20e-05)]


def test_exact_values_beside_the_log(tmp_path: Path) -> None:
    """The trainer's file fills in what the lines do not tell, and stands for them where there are none."""
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(
        '{"iteration": 1, "loss": 2.125, "grad_norm": 0.75, "tokens_per_s": 5.5}\n'
        '{"event": "validation", "iteration": 1, "loss": 3.5, "perplexity": 33.1, "at": "iteration 1"}\n'
        '{"event": "test", "iteration": 1, "loss": 3.75, "at": "the end of training for test data"}\n'
        "damaged {\n"
    )
    log = write(tmp_path / "1_job.out", [neox_line(1, "2.0", norm=None)])
    both = read_log([classify(log)], metrics=metrics)
    assert [series(both, name) for name in ("loss", "grad_norm")] == [[(1, 2.0)], [(1, 0.75)]]
    alone = make_run("run", read_log([], metrics=metrics))
    assert (alone.table.series("loss")[1].tolist(), alone.validations) == ([2.125], {1: 3.5})
    assert alone.tests == {1: 3.75}


@pytest.mark.parametrize("at", ["the end of training for {} data", "iteration 9 on {} set"])
def test_the_loss_of_the_test_data_is_none_of_the_validation(at: str) -> None:
    """Both blocks stand at one iteration, as GPT-NeoX and Megatron-LM word them."""
    blocks = [
        f" validation loss at {at.format(data)} | lm loss value: {loss} | lm loss PPL: 1.0E+01 |\n"
        for data, loss in (("validation", "2.5E+00"), ("test", "3.5E+00"))
    ]
    run = make_run("run", of(neox_line(9, "2.0") + "".join(blocks)))
    assert (run.validations, run.tests) == ({9: 2.5}, {9: 3.5})


def test_compressed_and_cut(tmp_path: Path) -> None:
    """A compressed log that was cut is read up to there."""
    lines = "".join(neox_line(i, f"{2 + i * 7919 % 10007 / 1e4:.4f}") for i in range(1, 4000))
    data = gzip.compress(lines.encode())
    (tmp_path / "x.log.gz").write_bytes(data[: len(data) // 2])
    steps = make_run("x", read_log([classify(tmp_path / "x.log.gz")])).table.steps.tolist()
    assert 10 < len(steps) < 3999
    assert steps == list(range(1, len(steps) + 1))


def test_times() -> None:
    """Times of logs, with and without a zone; what is no time is none."""
    assert seconds("2026-01-01T00:00:00+09:00") == 1767193200.0
    assert seconds("2026-01-01 00:00:00,500Z") == 1767225600.5
    assert seconds("yesterday") is None


def test_batches_that_are_counted_within_their_epoch() -> None:
    """ESPnet's: an epoch is no restart. Taken up again from an epoch's beginning it is one."""
    row = "{0}epoch:train:{1}-{2}batch: iter_time=0.003, loss_ctc=5.480, loss={3}, optim0_lr0=6.250e-07, train_time=0.7"
    rows = [row.format(epoch, last - 99, last, 9 - epoch) for epoch in (1, 2, 3) for last in (100, 200, 300)]
    summary = "2epoch results: [train] loss=1.669, lr_0=0.100, time=1 minute, [valid] loss=1.720, time=0.94 seconds"
    log = of("\n".join([*rows[:6], summary, *rows[6:]]))
    assert series(log, "loss") == [(100 * n, 8.0 - (n - 1) // 3) for n in range(1, 10)]
    (attempt,) = log.attempts
    assert attempt.validations == {600: 1.72}
    again = of("\n".join([*rows[:8], row.format(3, 1, 100, 5.5)]))
    assert [one.table.steps.tolist() for one in again.attempts] == [[100 * n for n in range(1, 9)], [700]]
    steps = of("\n".join(f"epoch: {n // 3} step: {n}, loss: {9 - n / 10}" for n in range(1, 10)))
    assert steps.attempts[0].table.steps.tolist() == list(range(1, 10))
