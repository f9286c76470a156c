"""From a line of any trainer to events: a step counter and a loss on one line, whatever stands between them.

Shapes (sources: torchtitan ``components/metrics.py``; nanoGPT ``train.py``; llm.c ``train_gpt2.cu``; Hugging Face
``Trainer.log``; Lightning's progress bar; DeepSpeed ``runtime/engine.py``, ``utils/timer.py``, ``runtime/utils.py``;
Megatron-LM ``megatron/training``; ESPnet ``espnet2/train``)::

    step: 10  loss:  7.1234  grad_norm: 1.2345  memory: 60.12GiB(75.90%)  tps: 6,667  mfu: 39.04%
    iter 1631: loss 4.0863, time 561.94ms, mfu 25.00%
    step    1/19560 | loss 10.955029 (+nanz)| norm 15.3384 (+nanz)| lr 8.57e-07 | 300.00 ms | 50.0% MFU | 1700 tok/s
    {'loss': 2.5, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}
    Epoch 0:  10%|# | 100/1000 [00:10<01:30, 9.91it/s, v_num=0, train_loss=2.30]
    step=100 loss=2.31 lr=1e-4 tokens_per_sec=12345
    2epoch:train:101-200batch: iter_time=0.003, loss_ctc=55.4, loss=80.856, optim0_lr0=6.250e-07, train_time=0.734
    ITER 500 TRAIN LOSS 2.31
"""

from __future__ import annotations

import re
from typing import Any

from hpcjob.logs import trainer_rows
from hpcjob.logs.events import EngineStep, Event, Iteration, Layout, LossScale, Memory, Timers, Validation, origin
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.trainer_fields import FIELDS, IS, NUMBER, fields, read_number
from hpcjob.logs.trainer_steps import steps

_TEXT_LIMIT = 8192
_LOSS = lazy(
    rf"(?<![\w])(?P<kind>(?:[A-Za-z][A-Za-z_/.-]{{0,30}}[ _/-]|(?:[a-z]{{1,20}}/)?CrossEntropy"
    rf"|(?:train|training|lm|val|valid|validation|eval|test))?)"
    r"(?:[Ll]oss(?:_step|/train/total)?|LOSS)"
    r"(?: is| at (?:step|iter|iteration) \d{1,12}"
    r"| (?P<after>[Tt]rain|[Vv]al(?:id)?|[Ee]val|[Tt]est)(?: \([^)]{1,20}\))?)?"
    rf"{IS}"
    rf"(?P<value>{NUMBER})(?![\w%]|\.\d)"
)
# Lines about held-out data that call its loss just "loss": torchtitan, fairseq.
_EVALUATES = lazy(r"\b(?:validate|[Ee]val(?:uation)?|[Vv]alidation) step\b|\bvalid on\b")
_AND_HELD_OUT = lazy(rf"[Ll]oss train[^|]{{1,60}}, val(?: \([^)]{{1,20}}\))?: (?P<value>{NUMBER})(?![\w/])")
# ESPnet's means over an epoch, of the training first.
_EPOCH_RESULTS = lazy(rf"\depoch results: \[train\] .*?\[valid\] .*?\bloss=(?P<value>{NUMBER})")
_HELD_OUT = lazy(r"(?:^|[_/ .-])(?:val|valid|validation|eval|test|dev)(?:$|[_/ .-])", re.IGNORECASE)
# Parts of a loss that are not the loss: of experts, of routers, of distillation, of further heads.
_PARTS = lazy(r"aux|z$|moe|balanc|router|mtp|kl|reg|distil|penalty|contrast", re.IGNORECASE)


def parse(text: str, line: Line) -> list[Event]:
    """Return the events of a line that is none of GPT-NeoX's own."""
    text = text[:_TEXT_LIMIT]
    if "memory (MB)" in text or "MA " in text or "MemAllocated=" in text:
        return [event for event in (_memory(text, line), _engine_step(text, line)) if event is not None]
    if "time (ms)" in text or ".....:" in text:
        return _timers(text, line)
    if "OVERFLOW" in text:
        return _overflow(text, line)
    if "micro_batches=" in text or "STAGE_PARAMS=" in text:
        return _layout(text, line)
    if "lr=[" in text or "global_step=" in text:
        step = _engine_step(text, line)
        if step is not None:
            return [step]
    if "loss" in text or "Loss" in text or "LOSS" in text:
        return _iteration(text, line) or trainer_rows.parse(text, line)
    return trainer_rows.parse(text, line)


def _iteration(text: str, line: Line) -> list[Event]:
    if "train_runtime" in text:
        return []  # the Trainer's last entry: means over the whole run
    trained, held_out = _losses(text)
    if trained is None and held_out is None:
        return []
    found = FIELDS["epoch"].search(text)
    epoch = None if found is None else next(filter(None, found.groups()))
    number, total = steps(text, epoch, text.casefold().find("oss"))
    if number is None and epoch is None:
        return []
    events: list[Event] = []
    if trained is not None:
        events.append(
            Iteration(
                **origin(line),
                shape="steps",
                iteration=number,
                train_iters=total,
                loss=read_number(trained),
                **fields(text),
            )
        )
    if held_out is not None:
        at = f"iteration {number}" if number is not None else f"epoch {epoch or ''}"
        events.append(Validation(**origin(line), at=at, iteration=number, loss=read_number(held_out)))
    return events


def _losses(text: str) -> tuple[str | None, str | None]:
    """Return the loss of the training and that on held-out data, as the line writes them."""
    trained: str | None = None
    held_out: str | None = None
    plain = False
    for match in _LOSS.finditer(text):
        kind = match["kind"].rstrip("_/ -")
        if _HELD_OUT.search(kind) or (match["after"] or "").lower() in ("val", "valid", "eval", "test"):
            held_out = held_out or match["value"]
        elif _PARTS.search(kind):
            continue
        elif trained is None or (not kind and not plain):
            trained, plain = match["value"], not kind
    if (results := _EPOCH_RESULTS.search(text)) is not None:
        return None, results["value"]
    if held_out is None and trained is not None and _EVALUATES.search(text):
        return None, trained
    if held_out is None and (match_too := _AND_HELD_OUT.search(text)) is not None:
        held_out = match_too["value"]
    return trained, held_out


_ENGINE = lazy(
    r"\bstep=(?P<step>\d{1,12}), skipped=(?P<skipped>\d{1,12}), lr=\[(?P<lr>[^\]]{1,400})\]"
    r"|\bglobal_step=(?P<global_step>\d{1,12}), RunningAvgSamplesPerSec=[\d.]+, CurrSamplesPerSec=(?P<rate>[\d.]+)"
)


def _engine_step(text: str, line: Line) -> Event | None:
    match = _ENGINE.search(text)
    if match is None:
        return None
    if match["step"] is None:
        return EngineStep(**origin(line), step=int(match["global_step"]), samples_per_s=read_number(match["rate"]))
    rates = [read_number(rate) for rate in re.findall(NUMBER, match["lr"])]
    return EngineStep(**origin(line), step=int(match["step"]), skipped=int(match["skipped"]), lr=rates)


_TIMER = lazy(r"\s*(?P<name>[A-Za-z][\w ./-]{0,60}): (?P<ms>\d+(?:\.\d+)?)\s*$")
_TIMER_LINE = lazy(r"^\s{0,8}(?P<name>[a-z][\w-]{1,60}) \.{3,}: \((?P<low>[\d.]+), (?P<high>[\d.]+)\)")


def _timers(text: str, line: Line) -> list[Event]:
    alone = _TIMER_LINE.match(text)
    if alone is not None:  # one timer a line: least and most over the ranks
        return [Timers(**origin(line), ms={alone["name"]: float(alone["high"])})]
    _, found, rest = text.partition("time (ms)")
    if not found:
        return []
    times = {match["name"]: float(match["ms"]) for part in rest.split("|") if (match := _TIMER.match(part))}
    return [Timers(**origin(line), ms=times)] if times else []


_MIB = 1 / 1024
_MEMORY_MB = {
    "allocated_gib": lazy(r"(?<!max )(?<!mem-)(?:\ballocated|mem-allocated-bytes): ([\d.]+)"),
    "max_allocated_gib": lazy(r"(?:max allocated|mem-max-allocated-bytes): ([\d.]+)"),
    "reserved_gib": lazy(r"(?<!max )\breserved: ([\d.]+)"),
    "max_reserved_gib": lazy(r"max reserved: ([\d.]+)"),
}
_MEMORY_GB = {
    "allocated_gib": lazy(r"(?:(?<![\w_])MA |(?<!Max)MemAllocated=)([\d.]+) ?GB"),
    "max_allocated_gib": lazy(r"(?:Max_MA |MaxMemAllocated=)([\d.]+) ?GB"),
    "reserved_gib": lazy(r"(?<![\w_])CA ([\d.]+) ?GB"),
    "max_reserved_gib": lazy(r"Max_CA ([\d.]+) ?GB"),
}


def _memory(text: str, line: Line) -> Event | None:
    patterns, unit = (_MEMORY_MB, _MIB) if "memory (MB)" in text else (_MEMORY_GB, 1.0)
    found: dict[str, Any] = {
        name: round(float(match[1]) * unit, 3) for name, pattern in patterns.items() if (match := pattern.search(text))
    }
    return Memory(**origin(line), **found) if found else None


_OVERFLOW = lazy(
    r"OVERFLOW! Rank (?P<rank>\d{1,7}) Skipping step\."
    r"(?: Attempted loss scale: (?P<tried>[\d.e+]{1,30}), (?:reducing to (?P<now>[\d.e+]{1,30})"
    r"|but hysteresis is \d{1,9}\. Reducing hysteresis to (?P<left>\d{1,9})))?"
)


def _overflow(text: str, line: Line) -> list[Event]:
    match = _OVERFLOW.search(text)
    if match is None:
        return []
    tried, now = match["tried"], match["now"]
    return [
        LossScale(
            **origin(line),
            overflow=True,
            tried=None if tried is None else read_number(tried.rstrip(".")),
            scale=None if now is None else read_number(now.rstrip(".")),
            hysteresis=None if match["left"] is None else int(match["left"]),
        )
    ]


_CONFIG = lazy(r"\bCONFIG: micro_batches=(?P<batches>\d{1,9}) micro_batch_size=(?P<size>\d{1,9})")
_STAGE = lazy(
    r"\bRANK=(?P<rank>\d{1,7}) STAGE=(?P<stage>\d{1,6}) LAYERS=(?P<layers>\d{1,6}) \[[^)]{1,40}\) "
    r"STAGE_PARAMS=(?P<params>\d{1,16}) .{0,40}?TOTAL_PARAMS=(?P<total>\d{1,16})"
)


def _layout(text: str, line: Line) -> list[Event]:
    config = _CONFIG.search(text)
    if config is not None:
        return [Layout(**origin(line), micro_batches=int(config["batches"]), micro_batch_size=int(config["size"]))]
    stage = _STAGE.search(text)
    if stage is None:
        return []
    where = {**origin(line), "rank": int(stage["rank"])}
    return [
        Layout(
            **where,
            stage=int(stage["stage"]),
            layers=int(stage["layers"]),
            stage_params=int(stage["params"]),
            total_params=int(stage["total"]),
        )
    ]
