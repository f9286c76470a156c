"""Training goes on from a checkpoint of GPT-NeoX where it lies, to its own losses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from neoxlite.convert.from_neox import convert
from neoxlite.errors import CheckpointError
from tests.neoxlite.convert.neox_samples import DATA, GOLDEN, NAMES, losses_of, write_config


@pytest.mark.parametrize(
    ("name", "resumed"),
    [
        *(pytest.param(name, {}, marks=() if name == "pipe" else pytest.mark.ci) for name in NAMES),
        pytest.param("pipe_tied_zero1", {"precision": "bfloat16"}, marks=pytest.mark.ci),
    ],
)
def test_it_is_read_where_it_lies(name: str, resumed: dict[str, Any], world: Any, tmp_path: Path) -> None:
    """The same losses without a converted copy; in bf16 from the fp32 master weights, near them."""
    from neoxlite.config import load_config

    precise = {"zero_optimization": {"stage": 1}} if resumed else {}
    cfg = load_config(write_config(tmp_path / "run.yml", name, **resumed, **precise))
    losses = world.run(1, losses_of, cfg, GOLDEN / name / "global_step3", DATA[name]["tokens"], 32)[0]
    near = 2e-2 if resumed else 2e-5
    assert losses == pytest.approx(DATA[name]["loss_steps_3_5_when_continued"], abs=near)


LAYOUTS: dict[str, dict[str, Any]] = {
    "tp2": {"model_parallel_size": 2},
    "pp2": {"pipe_parallel_size": 2, "zero_optimization": {"stage": 1}},
    "dp2-zero2": {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}},
    "dp2-zero3": {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}},
}


@pytest.mark.parametrize(
    ("name", "layout", "converted"),
    [
        # Each checkpoint and each layout once for CI.
        pytest.param(
            name, layout, converted, marks=pytest.mark.ci if place == turn and not converted else pytest.mark.full
        )
        for place, name in enumerate(NAMES)
        for turn, layout in enumerate(LAYOUTS)
        for converted in (False, True)
    ],
)
def test_training_goes_on_at_another_layout(
    name: str, layout: str, converted: bool, world: Any, tmp_path: Path
) -> None:
    """The same losses on two ranks, which the checkpoint was not written on, in place and converted."""
    from neoxlite.config import load_config

    folder = GOLDEN / name / "global_step3"
    if converted:
        folder = convert(GOLDEN / name, tmp_path / "out", [str(write_config(tmp_path / "was.yml", name))]).folder
    cfg = load_config(write_config(tmp_path / "run.yml", name, **LAYOUTS[layout]), world_size=2)
    losses = world.run(2, losses_of, cfg, folder, DATA[name]["tokens"], 32)[0]
    assert losses == pytest.approx(DATA[name]["loss_steps_3_5_when_continued"], abs=2e-5)


def written_as_upstream(own: Path, root: Path, consumed: int) -> None:
    """Write the weights of a checkpoint of ours as GPT-NeoX's layer files, without optimizer."""
    from safetensors.torch import load_file

    folder = root / "global_step4"
    folder.mkdir(parents=True)
    for path in own.glob("layer_*.safetensors"):
        torch.save(load_file(path), folder / f"{path.stem}-model_00-model_states.pt")
    state: dict[str, Any] = {
        "module": None,
        "optimizer": None,
        "iteration": 4,
        "skipped_steps": 0,
        "lr_scheduler": None,
    }
    state |= {"args": {"num_layers": 3, "padded_vocab_size": 512}, "ds_config": {"train_batch_size": consumed // 4}}
    torch.save(state, folder / "mp_rank_00_model_states.pt")
    (root / "latest").write_text("global_step4")


@pytest.mark.ci
def test_load_takes_a_folder_of_gpt_neox(train: Any, tmp_path: Path) -> None:
    """A whole run with ``load`` at it goes on at its iteration and place in the data, and saves checkpoints of ours.

    The losses are those of the run that goes on from the same weights in our own format.
    """
    first = train(1, save=str(tmp_path / "own"), checkpoint_factor=4, train_iters=4, lr_decay_iters=10)
    consumed = json.loads((tmp_path / "own" / "global_step4" / "manifest.json").read_text())["training"]
    written_as_upstream(tmp_path / "own" / "global_step4", tmp_path / "neox", consumed["consumed_samples"])
    where = {"no_load_optim": True, "lr_decay_iters": 10}
    expected = train(1, load=str(tmp_path / "own"), **where)
    got = train(1, load=str(tmp_path / "neox"), save=str(tmp_path / "new"), checkpoint_factor=5, **where)
    assert [entry["iteration"] for entry in got.metrics] == list(range(5, 11))
    assert got.losses == expected.losses
    assert first.losses[0] > got.losses[-1]
    assert (tmp_path / "new" / "latest").read_text() == "global_step10"
    assert (tmp_path / "new" / "global_step10" / "manifest.json").is_file()


def test_what_cannot_be_gone_on_from_in_place_is_named(tmp_path: Path) -> None:
    """A changed byte, a cut file, no optimizer state, another configuration: before anything is trained."""
    from neoxlite.checkpoint.source import open_source, saved_place
    from neoxlite.config import load_config
    from neoxlite.parallel.topology import Topology

    cfg = load_config(write_config(tmp_path / "run.yml", "pipe"))
    folder = Path(shutil.copytree(GOLDEN / "pipe", tmp_path / "重み")) / "global_step3"
    assert saved_place(folder, cfg)["consumed_samples"] == 6
    open_source(folder, cfg).verify(Topology())
    layer = folder / "layer_03-model_00-model_states.pt"
    data = layer.read_bytes()
    place = data.index(torch.load(layer)["mlp.linear1.weight"].numpy().tobytes()[:64])
    layer.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(CheckpointError, match=rf"{layer} is damaged: .* has changed \(checksum\)"):
        open_source(folder, cfg).verify(Topology())
    layer.write_bytes(data[:-40])
    with pytest.raises(CheckpointError, match=f"{layer} is damaged"):
        open_source(folder, cfg)
    layer.write_bytes(data)
    state = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
    torch.save({**state, "optimizer": None}, folder / "mp_rank_00_model_states.pt")
    with pytest.raises(CheckpointError, match="has no optimizer state of Adam") as caught:
        open_source(folder, cfg).load_optimizer(None)
    assert "no_load_optim: true" in str(caught.value.hint)
    other = load_config(write_config(tmp_path / "run.yml", "pipe", num_layers=3))
    with pytest.raises(CheckpointError, match="was trained with num_layers: 2, the configuration has 3"):
        open_source(folder, other)


@pytest.mark.parametrize(
    ("schedule", "skipped"), [({"num_iters": 2}, 1), ({"num_iters": 150}, 0), (None, 0)], ids=["new", "old", "none"]
)
def test_more_skipped_steps_than_iterations(schedule: dict[str, Any] | None, skipped: int, tmp_path: Path) -> None:
    """After ``finetune`` DeepSpeed adds to the skipped steps of the run before: the schedule's count has this run's."""
    from neoxlite.checkpoint.source import open_source, saved_place
    from neoxlite.config import load_config

    folder = Path(shutil.copytree(GOLDEN / "pipe", tmp_path / "neox")) / "global_step3"
    state = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
    full = {**state["lr_scheduler"], **schedule} if schedule else None
    torch.save({**state, "skipped_steps": 90, "lr_scheduler": full}, folder / "mp_rank_00_model_states.pt")
    cfg = load_config(write_config(tmp_path / "run.yml", "pipe"))
    for told in (saved_place(folder, cfg), open_source(folder, cfg).training):
        assert (told["iteration"], told["skipped_steps"], told["optimizer_step"]) == (3, skipped, 3 - skipped)
