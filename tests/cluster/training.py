"""A training run of a second: configuration and data, made by the commands that a user has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.user import BIN, User

ITERATIONS = 10

CONFIG: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "seq_length": 32,
    "max_position_embeddings": 32,
    "pos_emb": "rotary",
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    # The global batch is fixed: with one process a micro-batch of 8, with four of 2.
    "train_batch_size": 8,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1.0e-8}},
    "gradient_clipping": 1.0,
    "precision": "fp32",
    "zero_optimization": {"stage": 1},
    "train_iters": ITERATIONS,
    "log_interval": 1,
    "eval_interval": 100_000,
    "checkpoint_factor": 100_000,
    "eval_iters": 1,
    "tokenizer_type": "CharLevelTokenizer",
}


@dataclass(frozen=True)
class Training:
    """What a job's ``train:`` names."""

    config: Path

    @classmethod
    def prepare(cls, user: User) -> Training:
        """Write the text, tokenize it and write the configuration into the user's folder."""
        lines = (json.dumps({"text": f"{i} times {i} is {i * i}. " * 20}) for i in range(300))
        (user.folder / "text.jsonl").write_text("\n".join(lines) + "\n")
        tokenize = ["data", "tokenize", "--input", "text.jsonl", "--output-prefix", "text", "--append-eod"]
        user.run(BIN / "neoxlite", *tokenize, "--tokenizer-type", "CharLevelTokenizer")
        config = user.folder / "tiny.yml"
        config.write_text(yaml.safe_dump({**CONFIG, "data_path": str(user.folder / "text_text_document")}))
        return cls(config)

    def job(self, **settings: Any) -> dict[str, Any]:
        """The value of a job's ``train:``, with keys of the configuration replaced."""
        return {"configs": [str(self.config)], "set": settings}
