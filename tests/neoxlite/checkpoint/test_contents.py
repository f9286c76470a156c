"""What a checkpoint on disk holds, and that it is enough to evaluate and generate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file

from neoxlite.checkpoint.folder import saved_iterations
from neoxlite.checkpoint.manifest import Manifest
from tests.neoxlite.checkpoint.made import check


def test_a_checkpoint_is_whole_and_named_as_gpt_neox_names(saved: Path) -> None:
    """``latest``, one file a layer with GPT-NeoX's names and indices, the configuration as it was, and no leftovers."""
    assert (saved / "latest").read_text() == "global_step10"
    assert saved_iterations(saved) == [5, 10]
    assert not list(saved.glob(".*"))
    folder = saved / "global_step10"
    check(folder)
    assert sorted(path.name for path in folder.glob("layer_*")) == [
        f"layer_{index:02d}.safetensors" for index in (0, 2, 3, 4, 6, 7)
    ]
    block = load_file(folder / "layer_02.safetensors")
    assert {name: list(tensor.shape) for name, tensor in block.items()} == {
        "input_layernorm.weight": [32],
        "input_layernorm.bias": [32],
        "attention.query_key_value.weight": [96, 32],
        "attention.query_key_value.bias": [96],
        "attention.dense.weight": [32, 32],
        "attention.dense.bias": [32],
        "post_attention_layernorm.weight": [32],
        "post_attention_layernorm.bias": [32],
        "mlp.linear1.weight": [128, 32],
        "mlp.linear1.bias": [128],
        "mlp.linear2.weight": [32, 128],
        "mlp.linear2.bias": [32],
    }
    assert set(load_file(folder / "layer_06.safetensors")) == {"norm.weight", "norm.bias"}
    assert set(load_file(folder / "layer_07.safetensors")) == {"final_linear.weight"}
    assert (folder / "configs" / "run.yml").read_text() == (saved.parent / "run.yml").read_text()
    training = Manifest.read(folder).training
    assert (training["iteration"], training["consumed_samples"], training["optimizer_step"]) == (10, 80, 10)


def test_every_element_has_its_moments_exactly_once(saved: Path) -> None:
    """The pieces of both ranks cover each parameter without gap or overlap, though ZeRO cuts some in two."""
    folder = saved / "global_step10"
    pieces: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for path in folder.glob("optimizer_*"):
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                kind, name, start = key.split("/")
                pieces.setdefault((kind, name), []).append((int(start), file.get_slice(key).get_shape()[0]))
    sizes = {
        f"{int(path.stem.removeprefix('layer_'))}.{name}": tensor.numel()
        for path in folder.glob("layer_*")
        for name, tensor in load_file(path).items()
    }
    assert {name for _, name in pieces} == set(sizes)
    assert {kind for kind, _ in pieces} == {"exp_avg", "exp_avg_sq"}
    assert any(len(parts) == 2 for parts in pieces.values())
    for (_, name), parts in pieces.items():
        position = 0
        for start, length in sorted(parts):
            assert start == position, name
            position += length
        assert position == sizes[name], name


def test_evaluate_and_generate_from_a_checkpoint(command: Any, saved: Path, text_data: str) -> None:
    """Both read the checkpoint alone: the loss is a number on all held-out tokens, the text begins with the prompt."""
    config = str(saved.parent / "run.yml")
    code, out, _ = command("evaluate", config, "--load", str(saved), "--json")
    assert code == 0
    result = json.loads(out)
    assert result["iteration"] == 10
    # The text has runs of one letter and 512 possible tokens: an untrained model has 6.2 nats.
    assert 3.0 < result["splits"]["valid"]["loss"] < 6.2
    assert result["splits"]["valid"]["tokens"] % 32 == 0
    earlier = json.loads(command("evaluate", config, "--load", str(saved), "--iteration", "5", "--json")[1])
    assert earlier["splits"]["test"]["loss"] > result["splits"]["test"]["loss"]

    code, out, _ = command(
        "generate", "--load", str(saved), "--prompt", "def 関数", "--max-new-tokens", "5", "--num-samples", "2"
    )
    assert code == 0
    assert out.startswith("--- 1 of 2 ---\ndef 関数")
    assert "--- 2 of 2 ---\ndef 関数" in out
    code, _, err = command("generate", "--load", str(saved.parent / "no"), "--prompt", "x")
    assert code == 2
    assert "is not a folder" in err
