"""Hugging Face folders become checkpoints that train, and come back as they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from neoxlite.checkpoint.restore import restore
from neoxlite.convert.from_hf import import_folder
from neoxlite.convert.to_hf import export
from neoxlite.errors import CheckpointError

TOKENIZER = Path(__file__).parents[2] / "golden" / "tokenized" / "own_bpe_tokenizer.json"
SIZES: dict[str, Any] = {
    "vocab_size": 600,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "neox": ("GPTNeoX", {"intermediate_size": 80, "rotary_pct": 0.25, "vocab_size": 605}, "float32"),
    "neox_sequential_tied": (
        "GPTNeoX",
        {"intermediate_size": 80, "use_parallel_residual": False, "tie_word_embeddings": True, "hidden_act": "relu"},
        "float32",
    ),
    "neox_no_bias_tanh": (
        "GPTNeoX",
        {"intermediate_size": 80, "attention_bias": False, "hidden_act": "gelu_new"},
        "float16",
    ),
    "llama_gqa_bf16": ("Llama", {"intermediate_size": 52, "num_key_value_heads": 2, "rope_theta": 5e5}, "bfloat16"),
    "llama_biases_tied": (
        "Llama",
        {"intermediate_size": 52, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "float32",
    ),
    "mistral_window": (
        "Mistral",
        {"intermediate_size": 52, "num_key_value_heads": 2, "sliding_window": 32},
        "bfloat16",
    ),
}


def save_model(folder: Path, name: str) -> Path:
    """Save a random model with transformers, in several files, and return the folder."""
    import transformers

    kind, changes, dtype = MODELS[name]
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="60KB")
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "chat_template": "{{ 1 }}"}'
    )
    return folder


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """Return all weights of a Hugging Face folder."""
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


@pytest.mark.parametrize(
    "name", [one if one in ("neox", "llama_gqa_bf16") else pytest.param(one, marks=pytest.mark.ci) for one in MODELS]
)
def test_there_and_back_is_exact(name: str, tmp_path: Path) -> None:
    """Every weight comes back bit for bit, in its precision, with special tokens and chat template."""
    source = save_model(tmp_path / "元", name)
    done = import_folder(source, tmp_path / "続き")
    assert done.comparison.difference <= 1e-5
    export(done.folder, tmp_path / "戻り", shard_bytes=1 << 30)
    before, after = weights_of(source), weights_of(tmp_path / "戻り")
    assert set(after) == set(before)
    for key, tensor in before.items():
        assert after[key].dtype == tensor.dtype
        assert torch.equal(after[key], tensor), key
    text = (tmp_path / "続き" / "config.yml").read_text()
    assert ("# The weights are fp16." in text) == (MODELS[name][2] == "float16")
    was, now = (json.loads((folder / "config.json").read_text()) for folder in (source, tmp_path / "戻り"))
    for entry in ("model_type", "architectures", "bos_token_id", "eos_token_id", "hidden_act", "sliding_window"):
        assert now.get(entry) == was.get(entry), entry
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "戻り" / file).read_bytes() == (source / file).read_bytes()


@pytest.mark.ci
def test_the_configuration_that_comes_with_it_fine_tunes(
    tmp_path: Path, text_data: str, command: Callable[..., tuple[int, str, str]]
) -> None:
    """The YAML trains as it is, from the model's loss, and the new checkpoint exports with the source's tokenizer."""
    source = save_model(tmp_path / "src", "llama_gqa_bf16")
    code, out, err = command("convert", "from-hf", str(source), str(tmp_path / "start"))
    assert (code, err) == (0, "")
    assert f"train it: neoxlite train {tmp_path}/start/config.yml" in out
    sets = [f"data_path={text_data}", "train_iters=2", "checkpoint_factor=2", "eval_iters=0", "log_interval=1"]
    arguments = [word for one in sets for word in ("--set", one)]
    code, out, err = command("train", f"{tmp_path}/start/config.yml", "--require-load", *arguments)
    assert code == 0, err
    assert f"successfully loaded {tmp_path}/start/global_step0" in out
    assert "iteration        2/       2" in out
    trained = tmp_path / "start-finetuned" / "global_step2"
    assert restore(trained, torch.device("cpu")).tokenizer.eod == 0
    code, out, err = command("convert", "to-hf", str(tmp_path / "start-finetuned"), str(tmp_path / "out"))
    assert (code, err) == (0, "")
    assert (tmp_path / "out" / "tokenizer_config.json").read_bytes() == (source / "tokenizer_config.json").read_bytes()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["eos_token_id"] == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "other_model": ({"model_type": "gpt2"}, "config.json: model_type 'gpt2' cannot be read"),
    "scaled": ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "rope_parameters": None}, "rope_scaling: 'll"),
    "activation": ({"hidden_act": "quick_gelu"}, "hidden_act: 'quick_gelu' cannot be read"),
    "heads": ({"head_dim": 16}, "head_dim: 16 cannot be read"),
    "sizes": ({"intermediate_size": 60}, "config.json makes it"),
    "nonsense": ({"num_hidden_layers": "two"}, "num_hidden_layers is 'two', not a number"),
    "more_layers": ({"num_hidden_layers": 3}, "has no weight model.layers.2."),
    "fewer_layers": ({"num_hidden_layers": 1}, "which config.json does not name"),
}


def test_a_folder_without_a_model_is_told_as_such(tmp_path: Path) -> None:
    """It was a file that cannot be read, with code 1."""
    for folder, told in (
        (tmp_path, "is not a Hugging Face model: it has no config.json"),
        (tmp_path / "無い", "no such"),
    ):
        with pytest.raises(CheckpointError, match=told) as caught:
            import_folder(folder, tmp_path / "out")
        assert caught.value.exit_code == 2


def test_what_cannot_be_read_is_refused_by_its_key(tmp_path: Path) -> None:
    """Other architectures, scaled rotation, wrong sizes and damaged files: one line each, and nothing is written."""
    source = save_model(tmp_path / "src", "llama_gqa_bf16")
    good = json.loads((source / "config.json").read_text())
    for changes, told in REFUSED.values():
        (source / "config.json").write_text(json.dumps(good | changes))
        with pytest.raises(CheckpointError) as caught:
            import_folder(source, tmp_path / "out")
        assert told in caught.value.message
    (source / "config.json").write_text(json.dumps(good))

    def refused(told: str) -> None:
        with pytest.raises(CheckpointError) as caught:
            import_folder(source, tmp_path / "out")
        assert told in caught.value.message

    shard = min(source.glob("model-*.safetensors"))
    data = shard.read_bytes()
    shard.write_bytes(data[:-10])
    refused(f"{shard} is damaged: {len(data) - 10:,} bytes where its header records {len(data):,}")
    shard.write_bytes(b"\xff" * 100)
    refused(f"{shard} is damaged: it is not a safetensors file")
    shard.unlink()
    refused(f"{shard} cannot be read: No such file or directory")
    shard.write_bytes(data)
    (source / "model.safetensors.index.json").write_text('{"weight_map": {"x": "../../etc/passwd"}}')
    refused("is damaged: its weight_map is none")
    (source / "tokenizer.json").unlink()
    (source / "model.safetensors.index.json").unlink()
    refused("has no model.safetensors and no model.safetensors.index.json")
    assert [path.name for path in tmp_path.iterdir()] == ["src"]
