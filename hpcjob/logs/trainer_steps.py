"""Which step a line of a trainer is of, and of how many: a counter, or the bar that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpcjob.logs.lazy import lazy
from hpcjob.logs.trainer_fields import IS

_STEP = lazy(
    r"(?<![\w/])(?:global_step/max_steps|global[_ ]step|train/step|num_updates|current_steps"
    rf"|[Ii]teration|ITERATION|[Ii]ter|ITER|[Ss]tep|STEP)s?{IS}(?:\[[ ]{{0,8}})?(\d{{1,12}})"
    r"(?![\d.]*\d?[a-zA-Z%])(?:[ ]?(?:/|of)[ ]{0,8}(\d{1,12})|, \"total_steps\": (\d{1,12}))?"
    r"|(?<![\w/])(?:[Ii]t|[Bb]atch:?|Iter\(train\))[ ]{1,8}\[?[ ]{0,8}(\d{1,12})/[ ]{0,8}(\d{1,12})"
)
# ESPnet's '2epoch:train:101-200batch: ', whose batches are counted within the epoch, and other counters of batches.
_BATCH = lazy(
    r"\depoch:train:\d{1,12}-(\d{1,12})batch:"
    r"|(?<![\w/])(?:[Bb]atch: |[Uu]pdate (?=\d{1,12}[:,]))(\d{1,12})(?![\d./]*\d?[a-zA-Z%])"
)
# Bars, fairseq's 'epoch 002:    225 / 1975', torchvision's 'Epoch: [0][ 415/1736]' and MMEngine's
# 'Epoch(train)  [83][  50/2693]', Keras' '32/1875 [..', timm's 'Train: 0 [  50/2502 (  2%)]', OpenPCDet's
# 'Train:    1/3 ( 33%) [  49/323', DINOv2's 'Training  [ 1230/625000]', CLU's '[1000] loss=2.3'.
_BAR = lazy(
    r"[|%][ ]?(\d{1,12})/(\d{1,12}) \[\d|\bepoch \d+:? {1,8}(\d{1,12}) / (\d{1,12})\b"
    r"|\bEpoch(?:\(train\))?:? {0,4}\[\d{1,6}\][ \t]{0,4}\[[ ]{0,8}(\d{1,12})/(\d{1,12})\]"
    r"|^[ ]{0,8}(\d{1,12})/(\d{1,12}) (?:\[[=>.]|━)|━ (\d{1,12})/(\d{1,12}) \d+:\d"
    r"|\bTrain: {1,8}\d{1,6}(?:/\d{1,6} \([^)]{1,8}\))? \[[ ]{0,8}(\d{1,12})/(\d{1,12}) \("
    r"|\bTraining {1,4}\[[ ]{0,12}(\d{1,12})/(\d{1,12})\]"
    r"|^[ ]{0,8}(\d{1,12})(?:/(\d{1,12}))? \| (?:train )?loss[ :=]|^[ ]{0,8}(\d{1,12})/(\d{1,12}) (?:train )?loss[ :=]"
    r"|(?:^|\] )\[(\d{1,12})\]() [\w/]{1,80}="
)
_FROM_ONE = ("epoch", "Epoch [", "Epoch(")  # fairseq's, MMCV's and MMEngine's epochs; others count from 0
# 'Progress on:train 1.00kit/10.0kit rate:2.5it/s': tqdm's bar where there is no terminal.
_LOGGED_BAR = lazy(r"\bProgress on:\S{1,80} ([\d.]{1,12})([kMG]?)it/(?:([\d.]{1,12})([kMG]?)it)?")
_THOUSANDS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

Steps = tuple[int | None, int | None]
"""The step, counted from the start of the training, and the last one, as far as they are told."""


def steps(text: str, epoch: str | None, place: int) -> Steps:
    """Return the step that a line tells.

    Args:
        epoch: as the line writes it; a bar's steps are within it.
        place: where the loss stands: of several bars the last one before it counts.
    """
    counter = _STEP.search(text)
    if counter is None and ("atch:" in text or "pdate " in text):
        counter = _BATCH.search(text)
    if counter is not None:
        return _told(counter)
    logged = _LOGGED_BAR.search(text) if "Progress on:" in text else None
    if logged is not None:
        return _whole(logged[1], logged[2]), None if logged[3] is None else _whole(logged[3], logged[4])
    return _within_epoch(_nearest(_BAR.finditer(text), place), epoch)


def _whole(number: str, suffix: str) -> int | None:
    try:
        return round(float(number) * _THOUSANDS[suffix])
    except ValueError:
        return None


def _nearest(bars: Iterable[re.Match[str]], place: int) -> re.Match[str] | None:
    found: re.Match[str] | None = None
    for bar in bars:
        if found is None or bar.start() < place:
            found = bar
    return found


def _told(match: re.Match[str]) -> Steps:
    numbers = [int(group) for group in match.groups() if group]
    return numbers[0], numbers[1] if len(numbers) > 1 else None


def _within_epoch(match: re.Match[str] | None, epoch: str | None) -> Steps:
    if match is None:
        return None, None
    number, total = _told(match)
    if number is None or total is None or epoch is None or not epoch.isdigit():
        return number, total
    before = max(0, int(epoch) - match[0].startswith(_FROM_ONE))
    return before * total + number, (before + 1) * total
