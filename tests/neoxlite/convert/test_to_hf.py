"""Exports: what transformers makes of them by itself has the checkpoint's logits."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from neoxlite.checkpoint.restore import restore
from neoxlite.convert.families import family_of
from neoxlite.convert.to_hf import export
from neoxlite.errors import CheckpointError, DataError
from neoxlite.model.spec import ModelSpec
from tests.neoxlite.convert.samples import LLAMA, spec_of

MISTRAL: dict[str, dict[str, Any]] = {
    "mistral_window": {**LLAMA, "num_kv_heads": 2, "sliding_window_width": 5},
    "mistral_window_tied": {**LLAMA, "sliding_window_width": 20, "no_weight_tying": False},
}
NEOX: dict[str, dict[str, Any]] = {
    "rotary25_sequential": {},
    "rotary100_sequential": {"rotary_pct": 1.0},
    "parallel": {"gpt_j_residual": True},
    "parallel_one_norm": {"gpt_j_residual": True, "gpt_j_tied": True},
    "tied": {"no_weight_tying": False, "rotary_pct": 0.5},
    "no_attention_bias": {"use_bias_in_attn_linear": False},
    "no_mlp_bias": {"use_bias_in_mlp": False},
    "no_norm_bias": {"use_bias_in_norms": False},
    "tanh_gelu": {"bias_gelu_fusion": True},
    "relu": {"activation": "relu"},
    "silu": {"activation": "silu"},
    "mish": {"activation": "mish"},
    "epsilon": {"layernorm_epsilon": 1e-3},
    "base": {"rotary_emb_base": 500000},
}
GATED: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama_gqa": {**LLAMA, "num_kv_heads": 2},
    "llama_mqa_tied": {**LLAMA, "num_kv_heads": 1, "no_weight_tying": False},
    "llama_biases": {**LLAMA, "use_bias_in_mlp": True, "use_bias_in_attn_linear": True},
    "llama_attention_bias_gqa": {**LLAMA, "use_bias_in_attn_linear": True, "num_kv_heads": 2},
    "llama_geglu": {**LLAMA, "activation": "geglu"},
    "llama_reglu": {**LLAMA, "activation": "reglu"},
    "llama_glu": {**LLAMA, "activation": "glu"},
    "llama_bilinear": {**LLAMA, "activation": "bilinear"},
    "llama_base": {**LLAMA, "rotary_emb_base": 1000000, "rms_norm_epsilon": 1e-5},
}


def difference(folder: Path, exported: Path, dtype: torch.dtype = torch.float32) -> float:
    """Return the largest difference of a logit between our model and AutoModelForCausalLM, both in fp32."""
    from neoxlite.convert.compare import quiet

    with quiet():
        from transformers import AutoModelForCausalLM, AutoTokenizer

        theirs = AutoModelForCausalLM.from_pretrained(exported)
        assert {parameter.dtype for parameter in theirs.parameters()} == {dtype}
        ids = AutoTokenizer.from_pretrained(exported)("def f(x): 日本", return_tensors="pt")["input_ids"]
    restored = restore(folder, torch.device("cpu"))
    assert ids[0].tolist() == restored.tokenizer.encode("def f(x): 日本")
    with torch.no_grad():
        return float((restored.model(ids) - theirs.float()(ids).logits).abs().max())


FAST = ("parallel", "no_attention_bias", "llama_gqa", "llama_biases")


def tiered(table: dict[str, dict[str, Any]]) -> list[Any]:
    """Return the names, all but a few of them for the tier of whole runs."""
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.ci) for name in table]


@pytest.mark.parametrize("name", tiered(NEOX))
def test_gpt_neox_exports_have_the_logits(name: str, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """Both residual forms, shares of rotation, biases on and off, tied and untied, every activation: 1e-5 in fp32."""
    folder = checkpoint(**NEOX[name]) / "global_step7"
    done = export(folder, tmp_path / "書出", shard_bytes=1 << 30)
    assert done.class_name == "GPTNeoXForCausalLM"
    assert done.comparison.difference <= 1e-5
    assert difference(folder, tmp_path / "書出") <= 1e-5


@pytest.mark.parametrize("name", tiered(GATED))
def test_llama_exports_have_the_logits(name: str, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """RMSNorm and gated MLPs, with grouped queries, biases and tying: 1e-5 in fp32."""
    folder = checkpoint(**GATED[name]) / "global_step7"
    done = export(folder, tmp_path / "out", shard_bytes=1 << 30)
    assert done.class_name == "LlamaForCausalLM"
    assert done.comparison.difference <= 1e-5
    assert difference(folder, tmp_path / "out") <= 1e-5


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.ci) for name in MISTRAL])
def test_a_window_makes_it_a_mistral(name: str, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """Windows shorter than the prompt, which no other architecture has: 1e-5 in fp32."""
    folder = checkpoint(**MISTRAL[name]) / "global_step7"
    done = export(folder, tmp_path / "out", shard_bytes=1 << 30)
    assert done.class_name == "MistralForCausalLM"
    assert done.comparison.tokens > MISTRAL[name]["sliding_window_width"] + 1
    assert done.comparison.difference <= 1e-5
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    # transformers counts a token itself (masking_utils.sliding_window_overlay), GPT-NeoX does not (megatron/utils.py).
    assert written["sliding_window"] == MISTRAL[name]["sliding_window_width"] + 1
    assert difference(folder, tmp_path / "out") <= 1e-5


REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "window_neox": ({"sliding_window_width": 5}, None, "sliding_window_width: 5 (it sees everything before)"),
    "window_llama": ({**LLAMA, "sliding_window_width": 5}, "llama", "sliding_window_width: 5 (it sees everything"),
    "alibi": ({"pos_emb": "alibi"}, None, "pos_emb: alibi (it has rotary positions)"),
    "learned": ({"pos_emb": "learned"}, None, "pos_emb: learned (it has rotary positions)"),
    "none": ({"pos_emb": "none"}, None, "pos_emb: none (it has rotary positions)"),
    "rms_plain": ({"norm": "rmsnorm", "rotary_pct": 1.0}, None, "norm: rmsnorm (it has layernorm)"),
    "gated_layernorm": (
        {"activation": "swiglu", "intermediate_size": 144, "mlp_multiple_of": 1},
        None,
        "activation: swiglu (it has gelu",
    ),
    "parallel_llama": ({**LLAMA, "gpt_j_residual": True}, None, "gpt_j_residual: true"),
    "partial_llama": ({**LLAMA, "rotary_pct": 0.5}, None, "rotary_pct: 0.5 (it rotates whole heads)"),
    "gqa_neox": ({"num_kv_heads": 2}, None, "num_kv_heads: 2 (it has one for each of 4 heads)"),
    "softsign": ({"activation": "softsign"}, None, "activation: softsign"),
    "asked_mistral": ({**LLAMA, "use_bias_in_mlp": True}, "mistral", "use_bias_in_mlp: true (it has no biases)"),
    "asked_llama": ({}, "llama", "norm: layernorm (it has rmsnorm)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_such_form_is_refused_by_its_key(name: str, tmp_path: Path) -> None:
    """The message names the key, its value and why."""
    keys, asked, told = REFUSED[name]
    with pytest.raises(CheckpointError) as caught:
        family_of(spec_of(tmp_path, **keys), asked)
    assert told in caught.value.message
    assert caught.value.exit_code == 2


def test_every_part_of_a_model_is_considered() -> None:
    """A new part of the model has to be exported or refused: this list is compared by hand with the families."""
    described = """num_layers hidden_size num_attention_heads num_kv_heads max_position_embeddings padded_vocab_size
        mlp_hidden_size norm norm_epsilon pos_emb rotary_pct rotary_emb_base window activation gelu_tanh tied_head
        parallel_residual shared_norm bias_in_norms bias_in_attention bias_in_mlp hidden_dropout attention_dropout
        init_method_std"""
    of_training = """seq_length init_method output_layer_init_method checkpoint_activations checkpoint_num_layers
        recompute_granularity partition_activations checkpoint_in_cpu"""
    assert {field.name for field in fields(ModelSpec)} == {*described.split(), *of_training.split()}


def test_mistral_when_it_is_asked_for_and_shards_with_an_index(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """bf16 stays bf16 bit for bit, and every weight stands in the shard that the index says."""
    folder = checkpoint(dtype="bfloat16", **LLAMA, num_kv_heads=2) / "global_step7"
    done = export(folder, tmp_path / "out", family="mistral", shard_bytes=30_000)
    assert done.class_name == "MistralForCausalLM"
    assert difference(folder, tmp_path / "out", torch.bfloat16) <= 1e-5
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    assert len(shards) > 2
    for shard in shards:
        stored = load_file(tmp_path / "out" / shard)
        assert {name for name, place in index["weight_map"].items() if place == shard} == set(stored)
        assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    ours = load_file(folder / "layer_02.safetensors")["attention.query_key_value.weight"]
    there = load_file(tmp_path / "out" / index["weight_map"]["model.layers.0.self_attn.k_proj.weight"])
    assert torch.equal(ours[32:48], there["model.layers.0.self_attn.k_proj.weight"])


def test_a_wrong_export_never_appears(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the mapping is found by the logits, and nothing is left of the folder."""
    family = family_of(spec_of(tmp_path, **LLAMA), "llama")
    wrong = replace(family, config=lambda spec: family.config(spec) | {"rms_norm_eps": 1e-3})
    monkeypatch.setattr("neoxlite.convert.to_hf.family_of", lambda spec, asked: wrong)
    root = checkpoint(**LLAMA)
    with pytest.raises(CheckpointError, match="the logits are not those of LlamaForCausalLM"):
        export(root / "global_step7", tmp_path / "out", shard_bytes=1 << 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.yml", "重み", "重み.yml"]


def test_a_full_disk_is_told_before_and_during(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little room is refused before anything is written; a disk that fills up leaves nothing behind."""
    folder = checkpoint() / "global_step7"
    usage = shutil.disk_usage(tmp_path)
    # 58,240 parameters of four bytes, in the unit that fits and, where that hides what is missing, in bytes.
    for free, told in (1000, r"227\.5 KiB are needed, 1000 B are free"), (232_950, r"232,960 bytes .* 232,950 bytes"):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        with pytest.raises(CheckpointError, match=told):
            export(folder, tmp_path / "out", shard_bytes=1 << 30)
    monkeypatch.undo()

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("neoxlite.convert.hf_folder.write_tensors", full)
    with pytest.raises(CheckpointError, match="could not be written: No space left on device") as caught:
        export(folder, tmp_path / "out", shard_bytes=1 << 30)
    assert "nothing was left behind" in (caught.value.hint or "")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


TOKENIZED = Path(__file__).parents[2] / "golden" / "tokenized"
RECORDED = json.loads((TOKENIZED / "tokenized.json").read_text())
NARROW: dict[str, Any] = {"hidden_size": 8, "num_attention_heads": 1, "rotary_pct": 1.0}
TOKENIZERS: dict[str, dict[str, Any]] = {
    "HFTokenizer": {"vocab_file": str(TOKENIZED / "own_bpe_tokenizer.json")},
    "SPMTokenizer": {"vocab_file": str(TOKENIZED / "own_spm.model")},
    "CharLevelTokenizer": {},
    "GPT2BPETokenizer": NARROW,
    "HFGPT2Tokenizer": NARROW,
    "TiktokenTokenizer": {"vocab_file": "gpt2", **NARROW},
}


@pytest.mark.ci
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_tokenizer_is_exported_with_its_ids(name: str, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """AutoTokenizer gives the ids that GPT-NeoX recorded, and generation ends at the end of a document."""
    from transformers import AutoTokenizer, GenerationConfig

    folder = checkpoint(tokenizer_type=name, **TOKENIZERS[name]) / "global_step7"
    export(folder, tmp_path / "out", shard_bytes=1 << 30)
    # The other two are GPT-2's vocabulary too.
    recorded = RECORDED["tokenizers"].get(name, RECORDED["tokenizers"]["GPT2BPETokenizer"])
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text, ids in zip(RECORDED["texts"], recorded["ids"], strict=True):
        if name == "SPMTokenizer" and text.startswith("AAAA"):
            continue  # cuts of equal score: the libraries choose different ones
        assert theirs.encode(text, add_special_tokens=False) == ids, text
    assert GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id == recorded["eod"]


def test_a_broken_tokenizers_library_is_told(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of bytes needs it for transformers alone: no traceback, and no half folder."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match="needs the library tokenizers"):
        export(checkpoint(tokenizer_type="CharLevelTokenizer") / "global_step7", tmp_path / "out", shard_bytes=1 << 30)
    assert not (tmp_path / "out").exists()
