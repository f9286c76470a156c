"""What a row of `table.py` is: a model size, a micro-batch, who runs it, and keys that differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONFIGS = Path(__file__).parents[2] / "neoxlite/configs"
VOCABULARY = 50304
PEAK_TFLOPS = 989
"""Dense bf16 of an H200 on paper."""

PLAIN = {
    "kernels.compile_blocks": "false",
    "kernels.fused_head_loss": "false",
    "kernels.fused_gelu": "false",
    "kernels.fused_rotary": "false",
    "kernels.deferred_residual": "false",
    "zero_optimization.implementation": "deepspeed",
}
TRAINER = {
    "neoxlite": {},
    "plain": PLAIN,
    "unfused": dict.fromkeys(("kernels.fused_gelu", "kernels.fused_rotary", "kernels.deferred_residual"), "false"),
    "fp16": {
        "bf16.enabled": "false",
        "fp16.enabled": "true",
        "fp16.initial_scale_power": "12",  # from 2^32 all of a short run's steps would be skipped
        "data_types.grad_accum_dtype": "fp16",
    },
    "fp8": {"kernels.fp8": "true"},
    "fp8-fastest": {"kernels.fp8": "true", "kernels.fp8_recipe": "fastest"},
}
PEERS = {
    "loop": "a bare torch loop around the same model: what the engine costs",
    "hf": "GPTNeoXForCausalLM of transformers, fp32 weights under bf16 autocast, SDPA, AdamW(fused)",
    "hf-compiled": "the same under torch.compile",
    "hf-layers": "the same with each layer compiled",
    "litgpt": "litgpt's GPT as its pretrain has it in bf16-true: compiled whole, no fp32 master weights, AdamW(fused)",
}
SHORT = {"seq": "seq_length", "gas": "gradient_accumulation_steps", "recompute": "checkpoint_activations"}


@dataclass(frozen=True)
class Row:
    """``SIZE:MICRO[:WHO][:KEY=VALUE]...``, for example ``1-3B:8:fp8:gas=8``."""

    text: str
    size: str
    micro_batch: int
    who: str
    keys: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Row:
        """Raises SystemExit for what is no row."""
        size, micro, *rest = [*text.split(":"), ""] if ":" not in text else text.split(":")
        who = rest.pop(0) if rest and "=" not in rest[0] else "neoxlite"
        if not micro.isdigit() or who not in (*TRAINER, *PEERS) or not all("=" in word for word in rest):
            raise SystemExit(f"{text}: no row; write SIZE:MICRO[:{'|'.join((*TRAINER, *PEERS))}][:KEY=VALUE]...")
        pairs = (word.split("=", 1) for word in rest)
        return cls(text, size, int(micro), who, {SHORT.get(key, key): value for key, value in pairs})

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return int(self.keys.get("seq_length", 2048))

    @property
    def tokens(self) -> int:
        """Tokens of an iteration."""
        return self.micro_batch * self.length * int(self.keys.get("gradient_accumulation_steps", 1))

    def settings(self) -> dict[str, str]:
        """Keys of `neoxlite train` for this row."""
        return {
            "train_micro_batch_size_per_gpu": str(self.micro_batch),
            "max_position_embeddings": str(self.length),
            "checkpoint_activations": "false",
            **TRAINER.get(self.who, {}),
            **self.keys,
        }

    def shape(self) -> dict[str, Any]:
        """The model's keys in its shipped configuration."""
        shape: dict[str, Any] = yaml.safe_load((CONFIGS / f"{self.size}.yml").read_text())
        return shape

    def flops_per_token(self) -> tuple[float, float]:
        """Return model FLOPs with the whole attention matrix, and with the half that a causal kernel computes.

        6 N + 12 L h s, and 6 N + 6 L h s; N = 12 L h^2 + V h, the weights that take part in products.
        """
        shape = self.shape()
        layers, hidden = shape["num_layers"], shape["hidden_size"]
        weights = 12 * layers * hidden**2 + VOCABULARY * hidden
        attention = 6 * layers * hidden * self.length
        return 6 * weights + 2 * attention, 6 * weights + attention


def keep(path: Path, results: Any) -> None:
    """Write results as JSON at once: a call that is killed meanwhile leaves the earlier ones."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1) + "\n")
    temporary.rename(path)
