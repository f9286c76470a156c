"""Adam's moments and the fp32 master weights out of GPT-NeoX's checkpoints, whole and by parameter.

Under ZeRO 1 and 2 each replica holds a flat stretch of all parameters of a group, with a table of which elements are
whose. Without ZeRO the moments stand in the order of the optimizer's parameters, which follows from the model.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from neoxlite.checkpoint.optimizer_state import MASTER, MOMENTS
from neoxlite.config import NeoxConfig
from neoxlite.convert.pickles import FragmentAddress, PickledFile
from neoxlite.convert.shape import Parameter
from neoxlite.convert.upstream import Upstream, counts_by_sum
from neoxlite.convert.weight import Weight, combined, joined, part, shaped, stacked
from neoxlite.errors import CheckpointError
from neoxlite.model.naming import TIED_KEY
from neoxlite.model.spec import ModelSpec

_LEAVE_OUT = "take the weights alone (no_load_optim: true; convert: --no-optimizer): the optimizer then restarts"
_PREFIX = re.compile(rf"(?:tied_modules\.{TIED_KEY}|sequential\.(\d+)|(\d+))\.(.+)")
_OLD = {"mlp.dense_h_to_4h.": "mlp.linear1.", "mlp.dense_4h_to_h.": "mlp.linear2."}

State = dict[str, dict[str, Weight]]
"""Parameter -> kind (`MOMENTS`, `MASTER`) -> whole tensor of the parameter's shape."""


def optimizer_of(
    upstream: Upstream, cfg: NeoxConfig, spec: ModelSpec, parameters: Mapping[str, Parameter]
) -> tuple[State, int]:
    """Return the optimizer state, and the number of steps it has taken.

    Raises:
        CheckpointError: it is of a kind that cannot be read, or parts are missing.
    """
    reader = _of_shards if upstream.zero else _of_parameters
    slices, step = reader(upstream, cfg, spec, parameters)
    state: State = {}
    for name, parameter in parameters.items():
        ranks = slices.get(name, {})
        if set(ranks) != set(range(upstream.tensor_size)):
            raise CheckpointError(f"{upstream.folder} has no optimizer state of {name}", hint=_LEAVE_OUT, exit_code=2)
        added = counts_by_sum(name, spec)
        state[name] = {
            kind: _whole(upstream, name, parameter, ranks, kind, added=added and kind == MASTER) for kind in ranks[0]
        }
    return state, step


_Slices = dict[str, dict[int, dict[str, Weight]]]  # parameter -> tensor rank -> kind -> flat slice


def _whole(
    upstream: Upstream, name: str, parameter: Parameter, ranks: dict[int, Any], kind: str, *, added: bool
) -> Weight:
    shape = list(parameter.shape)
    if parameter.dim is not None:
        shape[parameter.dim] //= upstream.tensor_size
    parts = []
    for rank in range(upstream.tensor_size):
        weight = ranks[rank][kind]
        if weight.numel != math.prod(shape):
            raise CheckpointError(
                f"{upstream.folder} has {weight.numel:,} of {math.prod(shape):,} elements of {kind} of {name}",
                hint=_LEAVE_OUT,
            )
        parts.append(shaped(weight, tuple(shape)) if len(weight.shape) == 1 else weight)
    if added:
        return combined(parts, mean=False)
    # What every rank has gets the same gradient on all of them.
    return parts[0] if parameter.dim is None else joined(parts, parameter.dim, parameter.parts)


def _canonical(name: str) -> str:
    """Return a parameter's name in our naming from one of DeepSpeed's tables."""
    match = _PREFIX.fullmatch(name)
    if match is None:
        return name
    local = match[3]
    for old, new in _OLD.items():
        local = local.replace(old, new)
    return f"{match[1] or match[2] or 0}.{local}"


def _of_shards(
    upstream: Upstream, cfg: NeoxConfig, spec: ModelSpec, parameters: Mapping[str, Parameter]
) -> tuple[_Slices, int]:
    found: dict[str, dict[int, dict[str, list[Weight]]]] = defaultdict(dict)
    step = 0
    for number in sorted(upstream.slices):
        rank = number % upstream.tensor_size
        gathered: dict[str, dict[str, list[Weight]]] = defaultdict(lambda: defaultdict(list))
        for replica in range(upstream.data_size):
            file = upstream.zero[number, replica]
            step = max(step, _step(file))
            for name, kind, weight in _stretches(file):
                gathered[_canonical(name)][kind].append(weight)
        for name, kinds in gathered.items():
            # A tied matrix is on the first and on the last stage, the same on both.
            if name in parameters and rank not in found[name]:
                found[name][rank] = kinds
    whole = {
        name: {rank: {kind: stacked(parts) for kind, parts in kinds.items()} for rank, kinds in ranks.items()}
        for name, ranks in found.items()
    }
    return whole, step


def _optimizer_dict(file: PickledFile) -> dict[str, Any]:
    content = file.content()
    state = content.get("optimizer_state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise CheckpointError(f"{file.path} is damaged: it has no optimizer_state_dict", hint="copy it again")
    return state


def _step(file: PickledFile) -> int:
    base = _optimizer_dict(file).get("base_optimizer_state")
    return _most_steps(base) if isinstance(base, dict) else 0


def _most_steps(state: dict[str, Any]) -> int:
    """Return the largest count of steps: DeepSpeed's Adam keeps it in one parameter's state, others in all."""
    entries = state.get("state")
    each = [entry.get("step", 0) for entry in entries.values()] if isinstance(entries, dict) else []
    groups = [group.get("step", 0) for group in state.get("param_groups") or []]
    return max((int(value) for value in (*each, *groups)), default=0)


def _stretches(file: PickledFile) -> Iterator[tuple[str, str, Weight]]:
    """Yield (parameter, kind, flat elements) of one replica's shard."""
    state = _optimizer_dict(file)
    tables = state.get("param_slice_mappings")
    masters = state.get("single_partition_of_fp32_groups")
    base = state.get("base_optimizer_state")
    if not isinstance(tables, list) or not isinstance(masters, list) or not isinstance(base, dict):
        raise CheckpointError(
            f"{file.path} does not record which elements belong to which parameter (an older DeepSpeed wrote it)",
            hint=_LEAVE_OUT,
            exit_code=2,
        )
    for group, table in enumerate(tables):
        sources = {
            MASTER: file.weight("optimizer_state_dict", "single_partition_of_fp32_groups", group),
            **{
                kind: file.weight("optimizer_state_dict", "base_optimizer_state", "state", group, kind)
                for kind in MOMENTS
            },
        }
        for name, address in table.items():
            if not isinstance(address, FragmentAddress):
                raise CheckpointError(f"{file.path} is damaged: {name} has no address", hint="copy it again")
            for kind, source in sources.items():
                if address.start + address.numel > source.shape[0]:
                    raise CheckpointError(f"{file.path} is damaged: {name} lies outside {kind}", hint="copy it again")
                yield name, kind, part(source, address.start, address.start + address.numel)


def _of_parameters(
    upstream: Upstream, cfg: NeoxConfig, spec: ModelSpec, parameters: Mapping[str, Parameter]
) -> tuple[_Slices, int]:
    found: _Slices = defaultdict(dict)
    step = 0
    for number, file in sorted(upstream.slices.items()):
        content = file.content()
        state = content.get("optimizer") if isinstance(content, dict) else None
        if not isinstance(state, dict) or not isinstance(state.get("state"), dict):
            raise CheckpointError(f"{file.path} has no optimizer state of Adam", hint=_LEAVE_OUT, exit_code=2)
        step = max(step, _most_steps(state))
        stage, rank = divmod(number, upstream.tensor_size)
        names = _order(_names_of_stage(upstream, cfg, spec, parameters, stage), parameters, len(state["param_groups"]))
        indices = [index for group in state["param_groups"] for index in group["params"]]
        if len(indices) != len(names):
            raise CheckpointError(
                f"{file.path} has optimizer state of {len(indices)} parameters, this configuration {len(names)}",
                hint=f"give the configuration that the checkpoint was trained with, or {_LEAVE_OUT}",
                exit_code=2,
            )
        for index, name in zip(indices, names, strict=True):
            # gpt_j_tied: GPT-NeoX has a second norm that takes no part.
            if name in parameters and rank not in found[name]:
                found[name][rank] = {
                    kind: file.weight("optimizer", "state", index, kind) for kind in MOMENTS
                }  # fmt: skip
    _check_order(upstream, found, parameters)
    return found, step


def _check_order(upstream: Upstream, found: _Slices, parameters: Mapping[str, Parameter]) -> None:
    for name, ranks in found.items():
        shape = list(parameters[name].shape)
        if (dim := parameters[name].dim) is not None:
            shape[dim] //= upstream.tensor_size
        for kinds in ranks.values():
            for kind, weight in kinds.items():
                if list(weight.shape) != shape:
                    raise CheckpointError(
                        f"{upstream.folder}: {kind} of {name} has the shape {list(weight.shape)}, not {shape}",
                        hint=_LEAVE_OUT,
                    )


def _names_of_stage(
    upstream: Upstream, cfg: NeoxConfig, spec: ModelSpec, parameters: Mapping[str, Parameter], stage: int
) -> list[str]:
    """Return the parameters of one pipeline stage in GPT-NeoX's module order."""
    bounds = [0, spec.num_list_layers]
    if upstream.pipeline_size > 1:
        bounds = cfg.pipeline_partition(upstream.pipeline_size, spec.padded_vocab_size)
    names = [
        name
        for name in _with_idle_norms(spec, parameters)
        if bounds[stage] <= int(name.split(".")[0]) < bounds[stage + 1]
    ]
    last = stage == upstream.pipeline_size - 1
    if spec.tied_head and last and stage > 0:
        names = [name for name in parameters if name.startswith("0.")] + names
    return names


def _with_idle_norms(spec: ModelSpec, parameters: Mapping[str, Parameter]) -> list[str]:
    names = []
    for name in parameters:
        layer, _, local = name.partition(".")
        if spec.shared_norm and local == "mlp.linear1.weight":
            kinds = ("scale",) if spec.norm == "rmsnorm" else ("weight", "bias") if spec.bias_in_norms else ("weight",)
            names += [f"{layer}.post_attention_layernorm.{kind}" for kind in kinds]
        names.append(name)
    return names


def _order(names: list[str], parameters: Mapping[str, Parameter], groups: int) -> list[str]:
    """Return names in the optimizer's order: those that decay first, unless there is one group for all."""
    if groups == 1:
        return names
    decaying = [name for name in names if name in parameters and parameters[name].decays]
    return decaying + [name for name in names if name not in set(decaying)]
