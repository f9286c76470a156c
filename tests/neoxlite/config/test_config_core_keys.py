"""Each core key has two values with a different outcome; one that is parsed and silently ignored fails here.

Those that neoxlite acts on are in test_config_effects.py. Of the others the outcome is what the user is told: without
effect, and why; computed from other keys; refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from neoxlite.config import ConfigError, NeoxConfig, key_table
from neoxlite.config.keys import Key, Support, Tier, block_table
from tests.neoxlite.config.samples import Load

_KEYS = key_table() | block_table()
_CORE = [key for key in _KEYS.values() if key.tier is Tier.CORE]
# Where a value of the type alone is not enough.
_VALUES: dict[str, Any] = {
    "scheduler": {"type": "OneCycle", "params": {}},
    "output_layer_parallelism": "row",
    "zero_stage": 2,
    "optimizer_type": "lion",
    "zero_reduce_scatter": False,
    "dynamic_loss_scale": False,
}
_ELSEWHERE = (Support.USED, Support.LAUNCH)
_TOLD = {
    Support.IGNORED: "without effect in neoxlite: ",
    Support.DERIVED: "computed from other keys, the given value is not used: ",
}


def _other(key: Key) -> Any:
    """Return a value of the key that is not its default."""
    if key.name in _VALUES:
        return _VALUES[key.name]
    if key.type == "choice":
        return next(choice for choice in key.choices if choice != key.default)
    return {
        "bool": not key.default,
        "int": 77,
        "float": 0.77,
        "number": 77,
        "str": "some words",
        "dict": {"a": 1},
        "list": ["a"],
        "any": True,
    }[key.type]


def _told(cfg: NeoxConfig, name: str) -> list[str]:
    return [text for text in cfg.warnings if name in text]


@pytest.mark.parametrize("key", [key for key in _CORE if key.support not in _ELSEWHERE], ids=lambda key: key.name)
def test_what_has_no_part_in_training_is_told(key: Key, load: Load) -> None:
    """A file without it is told nothing; another value is named among the warnings, or refused with a way out."""
    assert not _told(load(), key.name)
    if key.support is Support.REFUSED:
        with pytest.raises(ConfigError, match=rf"small\.yml:\d+: {key.name}: ") as caught:
            load(**{key.name.replace("_", "-"): _other(key)})
        assert caught.value.hint == key.instead
        return
    (told,) = _told(load(**{key.name.replace("_", "-"): _other(key)}), key.name)
    if key.name == "output_layer_parallelism":
        assert told.endswith("output_layer_parallelism: row is of an earlier release; the head is cut by column")
        return
    assert told.startswith(_TOLD[key.support])


def test_what_has_no_effect_says_why(load: Load) -> None:
    """For each core or useful key without effect the table has the reason, and the warning repeats it."""
    keys = [key for key in _KEYS.values() if key.support is Support.IGNORED and key.tier is not Tier.EXOTIC]
    assert [key.name for key in keys if not key.instead] == []
    without = ("output_layer_parallelism", "fp16_lm_cross_entropy")  # the first has one value, the second needs fp16
    given = {key.name: _other(key) for key in keys if "." not in key.name and key.name not in without}
    (told,) = _told(load(**given), "without effect in neoxlite: ")
    for name in given:
        assert f"{name}" in told
        assert f"({key_table()[name].instead})" in told


def test_derived_values_are_not_taken_over(load: Load) -> None:
    """What is computed is computed, whatever a file says."""
    given = {"rank": 3, "local_rank": 3, "do_train": False, "user_script": "train.py", "config_files": {"a": "b"}}
    cfg: Any = load(**given, lr=0.5, clip_grad=7.0, zero_stage=3, batch_size=99)
    assert (cfg.rank, cfg.local_rank, cfg.do_train, cfg.user_script) == (None, None, None, None)
    assert list(cfg.config_files) == ["small.yml"]
    assert (cfg.lr, cfg.clip_grad, cfg.zero_stage, cfg.world_size, cfg.batch_size) == (0.001, 1.0, 0, 1, 2)
    assert len(cfg.warnings) == 1
