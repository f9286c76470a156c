"""What a line of a trainer tells besides step and loss: learning rate, norms, rates, times, memory."""

from __future__ import annotations

import re
from typing import Any

from hpcjob.logs.lazy import lazy

NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity)"
IS = r"['\"]?[ ]{0,2}[:=]?[ ]{0,8}['\"]?"
FIELDS: dict[str, re.Pattern[str]] = {
    "lr": lazy(
        rf"(?<![\w])(?:(?:optim\d{{1,2}}_)?lr_?\d{{1,2}}(?==)|lr|LR|[Ll]earning[_ ][Rr]ate){IS}(?P<value>{NUMBER})"
    ),
    "grad_norm": lazy(rf"(?<![\w])(?:[Gg]rad[_ ]?[Nn]orm|gnorm|norm){IS}(?:\{{'\w{{1,40}}': )?(?P<value>{NUMBER})"),
    "tokens_per_s": lazy(
        r"(?<![\w])(?:tps|wps|tgs(?: \(tokens/gpu/second\))?"
        r"|[Tt]ok(?:en)?s?[_/ ](?:per[_ ])?s(?:ec(?:ond)?)?"
        r"(?:(?:/|_per_)(?:gpu|device))?)"
        rf"{IS}(?P<value>{NUMBER})|(?P<after>{NUMBER})[KkMG]? tok(?:ens)?/s(?:ec)?(?![\w/:=])"
        rf"|(?<![\w])throughput{IS}(?P<last>{NUMBER})(?! ?samples)"
    ),
    "tflops": lazy(
        rf"(?<![\w])(?:model_)?(?:tflops|TFLOPs?|TFLOPS)(?:_per_(?:gpu|GPU)|/s/(?:device|GPU))?{IS}(?P<value>{NUMBER})"
    ),
    "mfu_percent": lazy(
        rf"(?<![\w])(?:mfu|MFU){IS}(?P<value>{NUMBER})%|(?P<after>{NUMBER})% (?:bf16 |fp16 )?MFU"
        rf"|(?<![\w])(?:mfu|MFU){IS}(?P<last>{NUMBER})"
    ),
    "loss_scale": lazy(rf"(?<![\w])loss[_ ]scale{IS}(?P<value>{NUMBER})"),
    "memory_gib": lazy(rf"(?<![\w])mem(?:ory\(GiB\){IS}(?P<after>{NUMBER})|(?:ory)?{IS}(?P<value>{NUMBER}) ?Gi?B)"),
    "epoch": lazy(
        rf"(?<![\w\]])(?:[Ee]poch|EPOCH)(?:\(train\) {{1,4}}\[(?P<other>\d{{1,6}})\]|{IS}\[?(?P<value>{NUMBER}))"
        r"|\bTrain: {1,8}(?P<after>\d{1,6})(?: \[|/)|\b(?P<before>\d{1,6})epoch(?::train:| results: )"
    ),
}
# How a line tells the time of an iteration, and the factor to milliseconds; a rate is turned over.
_IN_MS = lazy(
    rf"(?<![\w])(?:time|dt|iter[_ ]time|step[_ ]time|step_avg){IS}({NUMBER}) ?ms|({NUMBER}) ms\b(?!/)"
    rf"|\| ({NUMBER})ms$"
)
_IN_S = lazy(
    rf"(?<![\w])(?:iter|step)[_ ][Tt]ime{IS}({NUMBER}) ?s(?:ec)?\b|\(({NUMBER}) sec/step\)|({NUMBER})s/it\b"
    rf"|\(s/it\){IS}({NUMBER})"
    # Of torchvision, Detectron2 and MMEngine, in seconds though they do not say so: their data's time stands beside.
    rf"|(?<![\w])(?:Time: ({NUMBER})s, "
    rf"|time: ({NUMBER}),?[ ]{{1,2}}(?:last_time: \S{{1,20}}[ ]{{1,2}})?data(?:_time)?: )"
)
_TIMES: tuple[tuple[re.Pattern[str], float], ...] = (
    (_IN_MS, 1.0),
    (lazy(rf"(?<![\w])elapsed_time_per_iteration_ms{IS}({NUMBER})"), 1.0),
    (lazy(rf"(?<![\w])train_step_timing in s{IS}({NUMBER})|(?<![\w])seconds: ({NUMBER}), TFLOP"), 1e3),
    (_IN_S, 1e3),
    (lazy(rf"({NUMBER}) ?it/s\b|\(iter/s\){IS}({NUMBER})"), -1e3),
)
_SUFFIX = lazy(r"[KkMGB](?![A-Za-z])")
_THOUSANDS = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
"""As nanotron and others shorten a rate: 500K."""


def read_number(text: str) -> float:
    """Return the number that a text is, with commas between thousands or without."""
    return float(text.replace(",", "").replace("Infinity", "inf"))


def fields(text: str) -> dict[str, Any]:
    """Return the fields of an `Iteration` that a line tells."""
    found: dict[str, Any] = {}
    for name, pattern in FIELDS.items():
        match = pattern.search(text)
        if match is not None:
            group = next(group for group, text_of_it in match.groupdict().items() if text_of_it)
            value = read_number(match[group])
            if name == "tokens_per_s":
                value *= _thousands(text, match.end(group))
            if name == "mfu_percent" and value < 0:
                continue  # nanoGPT's way to say that it is not known yet
            found[name] = 100 * value if name == "mfu_percent" and value <= 1 and "%" not in match[0] else value
    time_ms = _time_ms(text)
    if time_ms is not None:
        found["iteration_time_ms"] = time_ms
    return found


def _thousands(text: str, place: int) -> float:
    suffix = _SUFFIX.match(text, place)
    return _THOUSANDS[suffix[0].upper()] if suffix else 1


def _time_ms(text: str) -> float | None:
    for pattern, factor in _TIMES:
        match = pattern.search(text)
        if match is None:
            continue
        place = next(number for number, group in enumerate(match.groups(), 1) if group is not None)
        value = read_number(match[place]) * _thousands(text, match.end(place))
        if factor > 0:
            return round(value * factor, 6)
        return round(-factor / value, 6) if value > 0 else None
    return None
