"""A conversion that is killed leaves nothing that looks finished, and the next one tidies up."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from neoxlite.checkpoint.manifest import Manifest
from neoxlite.convert.inspection import inspect
from tests.neoxlite.convert.samples import neox_config

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
KINDS = {"to-hf": 2, "from-hf": 1, "from-neox": 2}  # kills of each in the tier of whole runs
_EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def convert_rank(ranks: Any, words: list[str], place: str, kill_at: int) -> int:
    """Run ``neoxlite convert WORDS`` and kill this process at its ``kill_at``-th touch of ``place``; return touches."""
    from neoxlite.cli import main

    touches = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal touches
        if event in _EVENTS and any(place in str(one) for one in arguments if isinstance(one, str | Path)):
            touches += 1
            if touches == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    assert main(["convert", *words]) == 0
    return touches


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *(pytest.param(kind, count, marks=pytest.mark.ci) for kind, count in KINDS.items()),
        *(pytest.param(kind, 40, marks=pytest.mark.full) for kind in KINDS),
    ],
)
def test_killed_at_any_moment(
    kind: str, count: int, checkpoint: Callable[..., Path], world: Any, tmp_path: Path
) -> None:
    """At random touches of the target's place: it is not there, or whole; then the conversion succeeds."""
    # The forked children have it then.
    from transformers import AutoModelForCausalLM, AutoTokenizer, GPTNeoXForCausalLM  # noqa: F401

    place = tmp_path / "行先"
    place.mkdir()
    target = place / "out"
    if kind == "to-hf":
        words = ["to-hf", str(checkpoint()), str(target)]
    elif kind == "from-hf":
        world.run(1, convert_rank, ["to-hf", str(checkpoint()), str(tmp_path / "hf")], "nowhere", 0)
        words = ["from-hf", str(tmp_path / "hf"), str(target)]
    else:
        config = tmp_path / "run.yml"
        write_golden_config(config)
        words = ["from-neox", str(GOLDEN / "pipe"), str(target), str(config)]

    touches = world.run(1, convert_rank, words, str(place), 0)[0]
    assert touches > 10
    shutil.rmtree(target)
    chosen = random.Random(f"{kind}").sample(range(1, touches + 1), min(count, touches))
    for moment in chosen:
        with pytest.raises(AssertionError, match="died with code -9"):
            world.run(1, convert_rank, words, str(place), moment)
        finished = [path.name for path in place.iterdir() if not path.name.startswith(".")]
        assert finished in ([], ["out"])
        whole = bool(finished) and _is_whole(target)
        assert whole or not (target / "latest").exists()
        if whole:
            shutil.rmtree(target)
        world.run(1, convert_rank, words, str(place), 0)
        assert inspect(target).damage == []
        assert [path.name for path in place.iterdir()] == ["out"]
        shutil.rmtree(target)


def _is_whole(target: Path) -> bool:
    """Tell whether a model is there; a checkpoint or a Hugging Face folder that can be seen must be undamaged."""
    folders = list(target.glob("global_step*"))
    for folder in folders:
        assert Manifest.read(folder).damage(folder) == []
    if (target / "config.json").exists():
        assert inspect(target).damage == []
        return True
    return bool(folders)


def write_golden_config(path: Path) -> None:
    """Write the configuration of the golden checkpoint ``pipe``."""
    data = json.loads((GOLDEN / "checkpoint.json").read_text())["checkpoints"]["pipe"]
    path.write_text(yaml.safe_dump(neox_config(data["config"])))
