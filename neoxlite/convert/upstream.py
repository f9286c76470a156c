"""Checkpoints that GPT-NeoX itself wrote: which files there are, and the whole weights out of their slices.

``latest``, and in ``global_stepN/``: ``mp_rank_XX_model_states.pt`` for each slice of the model (pipeline stage x
tensor rank), ``layer_YY-model_TT-model_states.pt`` for each layer and tensor rank where the pipeline engine ran, and
``[bf16_]zero_pp_rank_D_mp_rank_XX_optim_states.pt`` for each replica under ZeRO.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from neoxlite.checkpoint.folder import LATEST, read_latest, saved_iterations, step_name
from neoxlite.common.paths import is_dir
from neoxlite.convert.pickles import PickledFile
from neoxlite.convert.shape import Parameter
from neoxlite.convert.weight import Weight, combined, joined
from neoxlite.errors import CheckpointError
from neoxlite.model.spec import ModelSpec

_LAYER = re.compile(r"layer_(\d+)-model_(\d+)-model_states\.pt")
_SLICE = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_ZERO = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_ZERO3 = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")
# Buffers of older releases: computed, not learned.
_COMPUTED = re.compile(r"(.*\.)?(inv_freq|masked_bias|attention\.bias)")
_OLD_NAMES = {"mlp.linear1": "mlp.dense_h_to_4h", "mlp.linear2": "mlp.dense_4h_to_h"}
_HINT = "give the folder that GPT-NeoX saved to, or a global_step... in it"


def is_upstream(folder: Path) -> bool:
    """Tell whether ``folder`` is one checkpoint of GPT-NeoX."""
    return is_dir(folder) and any(_SLICE.fullmatch(path.name) or _ZERO3.fullmatch(path.name) for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.suffix == ".pt")


def find_upstream(root: Path, iteration: int | None = None) -> Path:
    """Return the checkpoint folder that ``root`` means: itself, that of ``iteration``, or the one ``latest`` names.

    Raises:
        CheckpointError: there is none.
    """
    if iteration is None and is_upstream(root):
        return root
    if not is_dir(root):
        raise CheckpointError(f"{root} is not a folder", hint=_HINT, exit_code=2)
    try:
        name = step_name(iteration) if iteration is not None else read_latest(root)
    except OSError as error:
        raise CheckpointError(f"{root / LATEST} cannot be read: {error.strerror}", hint=_HINT, exit_code=2) from None
    if name is not None and Path(name).name == name and is_upstream(root / name):
        return root / name
    present = ", ".join(str(one) for one in saved_iterations(root) if is_upstream(root / step_name(one)))
    told = f"choose one with --iteration: {present}" if present else _HINT
    raise CheckpointError(
        f"{root} has no checkpoint of GPT-NeoX" + (f" {name}" if name else ""), hint=told, exit_code=2
    )


@dataclass(frozen=True)
class Upstream:
    """One checkpoint folder of GPT-NeoX."""

    folder: Path
    layers: Mapping[tuple[int, int], PickledFile]
    """Layer files by (layer, tensor rank); none where the pipeline engine did not run."""
    slices: Mapping[int, PickledFile]
    """mp_rank files by their number: pipeline stage x tensor ranks + tensor rank."""
    zero: Mapping[tuple[int, int], PickledFile]
    """Optimizer shards by (slice, replica)."""

    @classmethod
    def open(cls, folder: Path) -> Upstream:
        """Look at the files of ``folder``, without reading tensors.

        Raises:
            CheckpointError: files are missing, damaged or of a kind that cannot be read.
        """
        layers, slices, zero = {}, {}, {}
        for path in sorted(_files(folder)):
            if match := _LAYER.fullmatch(path.name):
                layers[int(match[1]), int(match[2])] = PickledFile(path)
            elif match := _SLICE.fullmatch(path.name):
                slices[int(match[1])] = PickledFile(path)
            elif match := _ZERO.fullmatch(path.name):
                zero[int(match[2]), int(match[1])] = PickledFile(path)
            elif _ZERO3.fullmatch(path.name):
                raise CheckpointError(
                    f"{path} is of ZeRO stage 3, whose weights lie in pieces over the replicas",
                    hint="let DeepSpeed's zero_to_fp32.py join them, or save with stage 1 or 2",
                    exit_code=2,
                )
        found = cls(folder, layers, slices, zero)
        found._check_complete()
        return found

    def _check_complete(self) -> None:
        if not self.slices:
            raise CheckpointError(f"{self.folder} has no mp_rank_00_model_states.pt", hint=_HINT)
        missing = [f"mp_rank_{n:02d}_model_states.pt" for n in range(max(self.slices) + 1) if n not in self.slices]
        missing += [
            f"layer_{layer:02d}-model_{rank:02d}-model_states.pt"
            for layer in sorted({layer for layer, _ in self.layers})
            for rank in range(self.tensor_size)
            if (layer, rank) not in self.layers
        ]
        if self.zero:
            replicas = 1 + max(replica for _, replica in self.zero)
            missing += [
                f"zero_pp_rank_{replica}_mp_rank_{n:02d}_optim_states.pt"
                for n in self.slices
                for replica in range(replicas)
                if (n, replica) not in self.zero
            ]
        if missing:
            more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
            raise CheckpointError(f"{self.folder} is not complete: {missing[0]} is missing{more}", hint="copy it again")

    @cached_property
    def tensor_size(self) -> int:
        """Number of tensor-parallel ranks that wrote it."""
        if self.layers:
            return 1 + max(rank for _, rank in self.layers)
        return len(self.slices)

    @property
    def pipeline_size(self) -> int:
        """Number of pipeline stages that wrote it."""
        return max(1, len(self.slices) // self.tensor_size)

    @property
    def data_size(self) -> int:
        """Number of replicas that wrote it."""
        return 1 + max((replica for _, replica in self.zero), default=int(self.state.get("dp_world_size") or 1) - 1)

    @property
    def layout(self) -> str:
        """How it was spread, for the user."""
        return f"dp {self.data_size} x pp {self.pipeline_size} x tp {self.tensor_size}"

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the first mp_rank file says besides tensors."""
        file = self.slices[0]
        content = file.content()
        if not isinstance(content, dict):
            raise CheckpointError(f"{file.path} is damaged: it holds no table", hint="copy it again")
        return {key: value for key, value in content.items() if key not in ("module", "optimizer")}

    @cached_property
    def args(self) -> dict[str, Any]:
        """The arguments that GPT-NeoX compares at load."""
        args = self.state.get("args")
        return dict(args) if isinstance(args, dict) else {}

    def layer_numbers(self) -> list[int]:
        """Return the layers that have parameters."""
        if self.layers:
            return sorted({layer for layer, _ in self.layers})
        return sorted({int(name.split(".")[1]) for name in self._module(0) if re.match(r"sequential\.\d+\.", name)})

    def _module(self, rank: int) -> Mapping[str, Any]:
        content = self.slices[rank].content()
        module = content.get("module") if isinstance(content, dict) else None
        if not isinstance(module, dict):
            raise CheckpointError(
                f"{self.slices[rank].path} has no weights, and there are no layer files beside it",
                hint="copy the complete folder",
            )
        return module

    def local_names(self, layer: int) -> set[str]:
        """Return the names of one layer's tensors, buffers that are computed left out."""
        if self.layers:
            content = self.layers[layer, 0].content()
            names = set(content) if isinstance(content, dict) else set()
        else:
            head = f"sequential.{layer}."
            names = {name.removeprefix(head) for name in self._module(0) if name.startswith(head)}
        return {name for name in names if not _COMPUTED.fullmatch(name)}

    def _slice(self, layer: int, name: str, rank: int) -> Weight:
        if self.layers:
            return self.layers[layer, rank].weight(name)
        return self.slices[rank].weight("module", f"sequential.{layer}.{name}")

    def weights(self, spec: ModelSpec, parameters: Mapping[str, Parameter]) -> dict[str, Weight]:
        """Return the whole weights of the model ``spec`` by `Parameter` name.

        Raises:
            CheckpointError: names or shapes are not the model's.
        """
        found, used = {}, set()
        for name, parameter in parameters.items():
            layer, _, local = name.partition(".")
            stored = self._stored(int(layer), local)
            used.add((int(layer), stored))
            slices = [self._slice(int(layer), stored, rank) for rank in range(self.tensor_size)]
            found[name] = whole(name, parameter, slices, spec)
            if found[name].shape != parameter.shape:
                raise CheckpointError(
                    f"{self.folder}: {name} has the shape {list(found[name].shape)}, this configuration's "
                    f"{list(parameter.shape)}",
                    hint="give the configuration that the checkpoint was trained with",
                    exit_code=2,
                )
        self._refuse_unused(spec, used)
        return found

    def _stored(self, layer: int, local: str) -> str:
        names = self.local_names(layer) if layer in self.layer_numbers() else set()
        module, _, kind = local.rpartition(".")
        for candidate in (local, f"{_OLD_NAMES.get(module, module)}.{kind}"):
            if candidate in names:
                return candidate
        raise CheckpointError(
            f"{self.folder}: layer {layer} has no {local}, which this configuration asks for",
            hint="give the configuration that the checkpoint was trained with",
            exit_code=2,
        )

    def _refuse_unused(self, spec: ModelSpec, used: set[tuple[int, str]]) -> None:
        for layer in self.layer_numbers():
            for name in sorted(self.local_names(layer)):
                # GPT-NeoX keeps a second norm where gpt_j_tied leaves it without part in the computation, and a last
                # stage may have written its copy of a tied matrix.
                idle = (spec.shared_norm and name.startswith("post_attention_layernorm.")) or (
                    spec.tied_head and layer == spec.num_list_layers - 1 and name == "word_embeddings.weight"
                )
                if (layer, name) not in used and not idle:
                    raise CheckpointError(
                        f"{self.folder}: layer {layer} has {name}, which this configuration has not",
                        hint="give the configuration that the checkpoint was trained with",
                        exit_code=2,
                    )


def whole(name: str, parameter: Parameter, slices: list[Weight], spec: ModelSpec) -> Weight:
    """Return the whole of a parameter from its tensor-parallel slices.

    What every rank has is the same on all, but for the output biases under gpt_j_residual: GPT-NeoX adds them on every
    rank before the one sum over the ranks, so they count by their sum (megatron/model/transformer.py).
    """
    if parameter.dim is not None:
        return joined(slices, parameter.dim, parameter.parts)
    return combined(slices, mean=not counts_by_sum(name, spec))


def counts_by_sum(name: str, spec: ModelSpec) -> bool:
    """Tell whether a parameter that every tensor-parallel rank has counts by the sum over them; see `whole`."""
    return spec.parallel_residual and name.endswith(("attention.dense.bias", "mlp.linear2.bias"))
