"""The configuration as the trainer sees it: every key resolved, typed and fixed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import Any, Literal

from neoxlite.config.architecture import Architecture
from neoxlite.config.batch import Batch
from neoxlite.config.keys import Support, block_table, key_table
from neoxlite.config.offload import Offload
from neoxlite.config.overrides import default_block
from neoxlite.config.partition import COUNTING, layer_names, partition
from neoxlite.config.precision import Precision
from neoxlite.config.reader import Entry
from neoxlite.errors import ConfigError

Initialiser = Literal[
    "normal",
    "scaled_normal",
    "orthogonal",
    "scaled_orthogonal",
    "xavier_uniform",
    "xavier_normal",
    "wang_init",
    "small_init",
    "single_residual_scaled_normal",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class NeoxConfig:
    """A resolved GPT-NeoX configuration. Made by `neoxlite.config.load_config`.

    The fields are the keys neoxlite uses, with the type they have after resolution; what a key means stands in the
    table (`neoxlite.config.key_table`). Every other GPT-NeoX key is an attribute too, but type checkers know the fields
    only: a program that needs another key first gives it a field here and a word in the table.
    """

    # Model
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int | None
    intermediate_size: int | None
    expansion_factor: float | None
    mlp_multiple_of: int
    seq_length: int
    max_position_embeddings: int
    norm: str
    layernorm_epsilon: float
    rms_norm_epsilon: float
    pos_emb: str
    rotary_pct: float
    rotary_emb_base: int
    sliding_window_width: int | None
    activation: str
    bias_gelu_fusion: bool
    use_bias_in_norms: bool
    use_bias_in_attn_linear: bool
    use_bias_in_mlp: bool
    no_weight_tying: bool
    gpt_j_residual: bool
    gpt_j_tied: bool
    attention_config: list[str]
    make_vocab_size_divisible_by: int
    init_method: Initialiser
    output_layer_init_method: Initialiser
    init_method_std: float
    attention_dropout: float
    hidden_dropout: float

    # Batch and layout
    train_batch_size: int
    train_micro_batch_size_per_gpu: int
    gradient_accumulation_steps: int
    world_size: int
    data_parallel_size: int
    pipe_parallel_size: int
    model_parallel_size: int
    pipe_partition_method: str
    sequence_parallel: bool
    global_num_gpus: int

    # Precision and engine
    precision: Precision
    zero_stage: int
    zero_optimization: dict[str, Any]
    fp16: dict[str, Any] | None
    bf16: dict[str, Any] | None
    data_types: dict[str, Any]
    fp32_allreduce: bool
    communication_data_type: str | None
    checkpoint_activations: bool
    checkpoint_num_layers: int
    recompute_granularity: Literal["full", "selective"]
    partition_activations: bool
    checkpoint_in_cpu: bool

    # Optimiser and schedule
    optimizer: dict[str, Any]
    lr: float
    weight_decay: float
    gradient_clipping: float
    train_iters: int
    """0 where train_epochs is given, until the data say how many it is."""
    train_epochs: int | None
    lr_decay_style: Literal["constant", "linear", "cosine", "exponential"]
    lr_decay_iters: int | None
    lr_decay_fraction: float | None
    min_lr: float
    warmup: float
    override_lr_scheduler: bool
    use_checkpoint_lr_scheduler: bool

    # Data and tokenizer
    data_path: str | None
    train_data_paths: list[str] | None
    valid_data_paths: list[str] | None
    test_data_paths: list[str] | None
    train_data_weights: list[float] | None
    valid_data_weights: list[float] | None
    test_data_weights: list[float] | None
    weight_by_num_documents: bool
    weighted_sampler_alpha: float
    eod_mask_loss: bool
    split: str
    seed: int
    tokenizer_type: str
    vocab_file: str | None
    merge_file: str | None

    # Loop, evaluation, checkpoints, logs
    eval_interval: int
    eval_iters: int
    log_interval: int
    wall_clock_breakdown: bool
    kernels: dict[str, Any] | None
    tensorboard_dir: str | None
    use_wandb: bool | None
    wandb_group: str | None
    wandb_run_name: str | None
    wandb_team: str | None
    wandb_project: str
    wandb_host: str
    peak_theoretical_tflops: float | None
    save: str | None
    load: str | None
    iteration: int | None
    finetune: bool
    no_load_optim: bool
    no_save_optim: bool
    checkpoint_scale: Literal["linear", "log"]
    checkpoint_factor: int | float | None
    extra_save_iters: list[int] | None
    keep_last_n_checkpoints: int | None
    checkpoint: dict[str, Any] | None

    # Text generation
    text_gen_type: str
    temperature: float
    top_k: int
    top_p: float
    maximum_tokens: int
    num_samples: int
    recompute: bool
    prompt_end: str
    sample_input_file: str | None
    sample_output_file: str

    # About the configuration itself
    config_files: dict[str, str]
    """Original text of each file by its name, for saving beside checkpoints."""
    config_paths: tuple[str, ...]
    """The files read, in order."""
    warnings: list[str]
    """What the user should know: old keys, ignored keys, a raised ZeRO stage. One line each."""
    notes: list[str]
    """Where training is another than GPT-NeoX's on purpose. One line each."""
    unsupported: list[str]
    """What neoxlite cannot train, and what to do about it; empty unless `load_config` was told to go on."""
    zero_stage_reason: str | None
    """Why ``zero_stage`` is not the configured one, or None."""
    offload: Offload | None
    """Where the optimizer's states are, if not on the device."""
    architecture: Architecture
    batch: Batch
    _entries: Mapping[str, Entry]
    _padded_vocab_size: int | None
    other_keys: InitVar[Mapping[str, Any]]

    def __post_init__(self, other_keys: Mapping[str, Any]) -> None:
        """Give the keys that are no fields as attributes."""
        for name, value in other_keys.items():
            object.__setattr__(self, name, value)

    def padded_vocab_size(self, vocab_size: int) -> int:
        """Return ``vocab_size`` rounded up to a multiple of make_vocab_size_divisible_by x model_parallel_size.

        A ``padded_vocab_size`` in the configuration wins (megatron/tokenizer/tokenizer.py).

        Raises:
            ConfigError: that one is smaller than ``vocab_size``.
        """
        if self._padded_vocab_size is not None:
            if self._padded_vocab_size < vocab_size:
                raise ConfigError(
                    f"{self.source('padded_vocab_size')}: padded_vocab_size {self._padded_vocab_size} is less than the "
                    f"tokenizer's {vocab_size}",
                    hint="remove padded_vocab_size: it is computed",
                )
            return self._padded_vocab_size
        multiple = self.make_vocab_size_divisible_by * self.model_parallel_size
        return -(-vocab_size // multiple) * multiple

    def parameter_count(self, padded_vocab: int, tensor: int = 1) -> int:
        """Return the parameters of the whole model, or of one of ``tensor`` tensor-parallel ranks.

        Raises:
            ConfigError: parts of the model cannot be counted (gMLP, Mamba, RWKV, other norms).
        """
        return self.architecture.parameter_count(padded_vocab, tensor)

    def flops_per_iteration(self, padded_vocab: int) -> float:
        """Return the floating-point operations of one iteration over all GPUs, recomputation included."""
        again = self.checkpoint_activations and self.recompute_granularity == "full"  # selective repeats no product
        return self.architecture.flops_per_iteration(padded_vocab, self.train_batch_size, again)

    def pipeline_partition(self, num_stages: int, padded_vocab: int | None = None) -> list[int]:
        """Return ``num_stages + 1`` bounds over the ``num_layers + 5`` layers, by ``pipe_partition_method``.

        ``padded_vocab`` is needed for the methods ``parameters`` and ``flops`` only, which raise ValueError without it.
        """
        names, method = layer_names(self.num_layers, tied=not self.no_weight_tying), self.pipe_partition_method.lower()
        weights: list[int] = []
        if method in COUNTING:
            if padded_vocab is None:
                raise ValueError(f"pipe_partition_method: {method} needs the padded vocabulary size")
            count = self.architecture.layer_flops if method == "flops" else self.architecture.layer_parameters
            weights = count(padded_vocab)
        return partition(self.pipe_partition_method, names, weights, num_stages)

    def with_train_iters(self, train_iters: int) -> NeoxConfig:
        """Return this configuration with the iterations that train_epochs comes to."""
        resolved = copy.copy(self)
        object.__setattr__(resolved, "train_iters", train_iters)
        return resolved

    def value(self, key: str) -> Any:
        """Return the resolved value of any key of the table."""
        return self._padded_vocab_size if key == "padded_vocab_size" else getattr(self, key)

    def source(self, key: str) -> str:
        """Return where the value of ``key`` comes from: ``file.yml:12``, ``--set``, ``default`` or ``derived``.

        A dotted ``key`` is looked up inside its block.
        """
        top, _, path = key.partition(".")
        known = key_table()[top]
        entry = self._entries.get(top)
        if entry is not None and known.support is not Support.DERIVED:
            place = entry.place_of(path) if path else entry.place
            if place is not None:
                return place.short
        defaults = (block_table()[key].default,) if key in block_table() else (known.default, default_block(top))
        return "default" if self._inside(top, path) in defaults else "derived"

    def _inside(self, top: str, path: str) -> Any:
        value = self.value(top)
        for step in path.split(".") if path else ():
            value = value.get(step) if isinstance(value, dict) else None
        return value

    def as_dict(self) -> dict[str, Any]:
        """Return the keys that were set, in the files or by ``--set``, with the values as written."""
        return {key: entry.value for key, entry in self._entries.items()}
