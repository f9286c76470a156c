"""Looking at models of all three kinds, and writing checkpoints anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from neoxlite.checkpoint.manifest import Manifest
from neoxlite.convert.inspection import inspect
from neoxlite.convert.own import OwnCheckpoint
from neoxlite.convert.reshard import reshard
from neoxlite.convert.to_hf import export
from neoxlite.errors import CheckpointError

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
Command = Callable[..., tuple[int, str, str]]


def test_every_kind_of_model_is_told(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """Ours, GPT-NeoX's and Hugging Face's: format, iteration, parameters, precision, layout, tokenizer."""
    root = checkpoint(dtype="bfloat16", no_weight_tying=False)
    ours = inspect(root)
    # 12 L h^2 + 13 L h + 2 h + V h of a tied model (facts of GPT-NeoX, parameter count).
    count = 12 * 2 * 32**2 + 13 * 2 * 32 + 2 * 32 + 512 * 32
    assert (ours.format, ours.iteration, ours.parameters, ours.dtype) == ("neoxlite", 7, count, "bf16")
    assert (ours.optimizer, ours.tokenizer, ours.damage) == ("none", "CharLevelTokenizer", [])
    export(root / "global_step7", tmp_path / "hf", shard_bytes=10_000)
    theirs = inspect(tmp_path / "hf")
    assert (theirs.format, theirs.parameters, theirs.dtype, theirs.damage) == ("Hugging Face", count, "bf16", [])
    assert theirs.tokenizer == "tokenizer.json, tokenizer_config.json, generation_config.json"
    upstream = inspect(GOLDEN / "pipe_tied_zero1")
    assert (upstream.format, upstream.iteration, upstream.parameters, upstream.dtype) == ("GPT-NeoX", 3, 7104, "fp32")
    assert upstream.layout == "dp 1 x pp 1 x tp 1"
    assert inspect(GOLDEN / "sequential_pp0").parameters == 7616


def test_damaged_files_are_named(checkpoint: Callable[..., Path], tmp_path: Path, command: Command) -> None:
    """The command ends with 1 and names each file, in words and as JSON; what is no model is a usage error."""
    folder = checkpoint() / "global_step7"
    code, out, err = command("convert", "inspect", str(folder.parent))
    assert (code, err) == (0, "")
    assert "layers                          5\n" in out
    assert "parameters                      58,240" in out
    data = bytearray((folder / "layer_02.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "layer_02.safetensors").write_bytes(data)
    (folder / "layer_03.safetensors").write_bytes(b"")
    code, out, err = command("convert", "inspect", str(folder.parent), "--json")
    assert code == 1
    report = json.loads(out)
    # Embedding, two blocks, norm and head, as before; and no count of the whole files alone.
    assert (report["layers"], report["parameters"]) == (5, None)
    assert "parameters                      not counted" in command("convert", "inspect", str(folder.parent))[1]
    damage = report["damage"]
    assert damage[0] == "layer_02.safetensors has changed since it was written (checksum)"
    assert damage[1].startswith("layer_03.safetensors has 0 bytes, ")
    (folder / "manifest.json").write_text("{")
    assert command("convert", "inspect", str(folder))[0] == 1
    source = Path(shutil.copytree(GOLDEN / "pipe", tmp_path / "neox"))
    (source / "global_step3" / "layer_00-model_00-model_states.pt").write_bytes(b"PK\x03\x04 nothing")
    assert "layer_00-model_00-model_states.pt is damaged" in inspect(source).damage[0]
    code, _, err = command("convert", "inspect", str(GOLDEN.parent))
    assert code == 2
    assert err.startswith("neoxlite: ")
    assert "holds no model" in err
    assert command("convert", "inspect", str(tmp_path / "nowhere"))[0] == 2


@pytest.mark.ci
def test_reshard_keeps_the_run_and_makes_few_files(train: Any, tmp_path: Path) -> None:
    """From two ranks' pieces: one file a layer, the same weights and moments, and the same loss curve from it."""
    sizes = {"train_iters": 6, "checkpoint_factor": 3, "seq_length": 16, "train_micro_batch_size_per_gpu": 1}
    whole = train(2, save=str(tmp_path / "run"), **sizes)
    source = tmp_path / "run" / "global_step3"
    done = reshard(source, tmp_path / "merged")
    assert done.files_before > done.files == 12
    before, after = OwnCheckpoint.open(source).optimizer_state(), OwnCheckpoint.open(done.folder).optimizer_state()
    for name, kinds in before.items():
        for kind, weight in kinds.items():
            assert torch.equal(after[name][kind].whole(), weight.whole())
    again = train(1, load=str(tmp_path / "merged"), **{**sizes, "train_micro_batch_size_per_gpu": 2})
    assert again.losses == pytest.approx(whole.losses[3:], rel=1e-5)
    small = reshard(source, tmp_path / "small", dtype=torch.bfloat16, with_optimizer=False)
    assert {one.dtype for one in load_file(small.folder / "layer_02.safetensors").values()} == {torch.bfloat16}
    assert not Manifest.read(small.folder).training["with_optimizer"]
    assert not list(small.folder.glob("optimizer_*"))
    low = OwnCheckpoint.open(reshard(source, tmp_path / "low", dtype=torch.bfloat16).folder)
    full = OwnCheckpoint.open(source)
    masters = low.optimizer_state()
    for name, weight in full.weights.items():
        assert torch.equal(masters[name]["master"].whole(), weight.whole())
    back = OwnCheckpoint.open(reshard(low.folder, tmp_path / "back", dtype=torch.float32).folder)
    for name, weight in full.weights.items():
        assert torch.equal(back.weights[name].whole(), weight.whole())
    with pytest.raises(CheckpointError, match="global_step3 exists"):
        reshard(source, tmp_path / "back")
