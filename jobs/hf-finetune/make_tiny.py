"""Make a model small enough to fine-tune on a CPU, with a tokenizer and a text: python make_tiny.py FOLDER

For trying a cluster out: nothing is downloaded, nothing useful is learnt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tokenizers
import torch
import transformers

END = "<|endoftext|>"


def main(folder: Path) -> None:
    """Write FOLDER/model and FOLDER/train.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [f"{a} times {b} is {a * b}. " * 4 for a in range(2, 30) for b in range(2, 12)]
    lines = (json.dumps({"text": text}) for text in texts)
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")

    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=384, special_tokens=[END], show_progress=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token=END)
    tokenizer.save_pretrained(folder / "model")

    torch.manual_seed(1)
    size = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.GPTNeoXConfig(
        vocab_size=len(tokenizer), max_position_embeddings=128, eos_token_id=tokenizer.eos_token_id, **size
    )
    transformers.GPTNeoXForCausalLM(config).save_pretrained(folder / "model")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
