"""What a checkpoint of GPT-NeoX holds, as the model of a configuration: weights, optimizer state, place in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neoxlite.convert.own import training_entry
from neoxlite.convert.shape import Parameter, parameters_of
from neoxlite.convert.upstream import Upstream
from neoxlite.convert.upstream_optimizer import State, optimizer_of
from neoxlite.convert.upstream_scale import loss_scale_of
from neoxlite.convert.weight import Weight
from neoxlite.errors import CheckpointError
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.schedule import STYLES, Schedule

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig

_COMPARED = ("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "tokenizer_type")


@dataclass(frozen=True)
class NeoxModel:
    """The whole model of one checkpoint folder; its numbers are read when they are needed."""

    upstream: Upstream
    cfg: NeoxConfig
    spec: ModelSpec
    parameters: dict[str, Parameter]
    weights: dict[str, Weight]

    @classmethod
    def of(cls, upstream: Upstream, cfg: NeoxConfig) -> NeoxModel:
        """Find the parameters of ``cfg``'s model in the files.

        Raises:
            CheckpointError: they are damaged, or of another model.
        """
        _compare(upstream, cfg)
        spec = ModelSpec.from_config(cfg, _padded_vocabulary(upstream))
        parameters = parameters_of(spec)
        return cls(upstream, cfg, spec, parameters, upstream.weights(spec, parameters))

    def optimizer(self) -> tuple[State, int]:
        """Return the optimizer state, and the number of steps it has taken. Raises CheckpointError if it has none."""
        return optimizer_of(self.upstream, self.cfg, self.spec, self.parameters)

    def training(self, step: int) -> dict[str, Any]:
        """Return the state of training as a manifest of ours has it; ``step`` 0: the optimizer's is not known."""
        source = f"GPT-NeoX {self.upstream.folder.name}"
        position, schedule = position_of(self.upstream, self.cfg, step), _schedule(self.upstream, self.cfg)
        entry = training_entry(self.spec, self.cfg, position=position, schedule=schedule, source=source)
        return {**entry, "loss_scale": loss_scale_of(self.upstream) if self.cfg.precision == "fp16" else None}


def _compare(upstream: Upstream, cfg: NeoxConfig) -> None:
    args = upstream.args
    for key in _COMPARED:
        if key in args and str(args[key]).lower() != str(getattr(cfg, key)).lower():
            raise CheckpointError(
                f"{upstream.folder} was trained with {key}: {args[key]}, the configuration has {getattr(cfg, key)}",
                hint="give the configuration that it was trained with",
                exit_code=2,
            )


def _padded_vocabulary(upstream: Upstream) -> int:
    known = upstream.args.get("padded_vocab_size")
    if isinstance(known, int):
        return known
    if upstream.layers:
        weight = upstream.layers[0, 0].weight("word_embeddings.weight")
    else:
        weight = upstream.slices[0].weight("module", "sequential.0.word_embeddings.weight")
    return weight.shape[0] * upstream.tensor_size


def position_of(upstream: Upstream, cfg: NeoxConfig, step: int) -> dict[str, int]:
    """Return how far training had come, and on how many ranks."""
    state = upstream.state
    iteration = _count(upstream, "iteration", state.get("iteration", state.get("global_steps")))
    skipped = _skipped(upstream, iteration)
    ds_config = state.get("ds_config")
    batch = ds_config.get("train_batch_size") if isinstance(ds_config, dict) else None
    batch = batch if isinstance(batch, int) and batch > 0 else cfg.train_batch_size
    return {
        "iteration": iteration,
        # GPT-NeoX goes on at iteration x batch (megatron/data/data_utils.py).
        "consumed_samples": iteration * batch,
        "skipped_steps": skipped,
        "optimizer_step": step or iteration - skipped,
        "train_batch_size": batch,
        "data_parallel_size": upstream.data_size,
        "world_size": upstream.data_size * len(upstream.slices),
    }


def _skipped(upstream: Upstream, iteration: int) -> int:
    """Return how many of the iterations took no step.

    With ``finetune`` GPT-NeoX counts iterations anew, while DeepSpeed adds to the skipped steps of the run before; the
    schedule's count of steps is the new run's.
    """
    skipped = _count(upstream, "skipped_steps", upstream.state.get("skipped_steps", 0))
    if skipped <= iteration:
        return skipped
    schedule = upstream.state.get("lr_scheduler")
    steps = schedule.get("num_iters") if isinstance(schedule, dict) else None
    return iteration - steps if isinstance(steps, int) and 0 <= steps <= iteration else 0


def _count(upstream: Upstream, name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CheckpointError(f"{upstream.folder}: {name} is {str(value)[:40]!r}", hint="copy the folder again")
    return value


def _schedule(upstream: Upstream, cfg: NeoxConfig) -> dict[str, Any]:
    """Return GPT-NeoX's five numbers, those of the configuration where the checkpoint has none."""
    saved = upstream.state.get("lr_scheduler")
    configured = Schedule.from_config(cfg).state()
    if not isinstance(saved, dict):
        return configured
    found: dict[str, Any] = {key: saved.get(key) for key in configured}
    numbers = (found["start_lr"], found["min_lr"], found["warmup_iter"], found["end_iter"])
    right = all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)
    if not right or found["decay_style"] not in STYLES:
        raise CheckpointError(
            f"{upstream.folder}: its learning-rate schedule is {str(found)[:160]}", hint="copy the folder again"
        )
    return {**found, "end_iter": int(found["end_iter"])}
