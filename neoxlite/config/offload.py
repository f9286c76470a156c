"""ZeRO-Offload: the optimizer's states, and its steps, on the host in place of the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neoxlite.config.values import shown
from neoxlite.errors import ConfigError

_KEY = "zero_optimization.offload_optimizer"
# Of DeepSpeed's block (runtime/zero/offload_config.py, 0.19.8) those that say how, not what; they belong to other
# devices than the host, or to other optimizers than ours.
_WITHOUT_EFFECT = ("nvme_path", "buffer_count", "pipeline", "pipeline_read", "pipeline_write", "fast_init")
_KNOWN = ("device", "pin_memory", *_WITHOUT_EFFECT)


@dataclass(frozen=True)
class Offload:
    """Master weights and moments live in host memory; the host's cores take the steps."""

    pin_memory: bool = False
    """Page-locked gradients: faster to copy, and memory that nothing else gets."""

    def deepspeed_block(self) -> dict[str, Any]:
        """Return the block for DeepSpeed."""
        return {"device": "cpu", "pin_memory": self.pin_memory}


def resolve_offload(block: Mapping[str, Any], stage: int) -> Offload | None:
    """Read ``offload_optimizer``, or its older spelling ``cpu_offload``, of a ``zero_optimization`` block.

    Args:
        stage: the ZeRO stage that the run will use.

    Raises:
        ConfigError: a value that means nothing, NVMe, or no ZeRO.
    """
    given = block.get("offload_optimizer")
    if given is None:
        offload = Offload(bool(block.get("cpu_offload_use_pin_memory"))) if block.get("cpu_offload") else None
    else:
        offload = _read(given)
    if offload is not None and stage == 0:
        raise ConfigError(
            f"{_KEY} needs ZeRO, and zero_optimization.stage is 0",
            hint="the nearest that works: zero_optimization.stage: 1",
        )
    return offload


def _read(given: Mapping[str, Any]) -> Offload | None:
    unknown = sorted(str(name) for name in given if name not in _KNOWN)
    if unknown:
        raise ConfigError(
            f"{_KEY}: {', '.join(unknown)} is not known to neoxlite", hint="it takes device: cpu and pin_memory"
        )
    device, pin_memory = given.get("device", "none"), given.get("pin_memory", False)
    if device not in ("none", "cpu", None):
        raise ConfigError(f"{_KEY}.device: {shown(device)} is not supported by neoxlite", hint="use cpu, or none")
    if not isinstance(pin_memory, bool):
        raise ConfigError(f"{_KEY}.pin_memory: {shown(pin_memory)} is not true or false", hint="write true or false")
    return Offload(pin_memory) if device == "cpu" else None
