"""Checkpoints on disk: what they hold, how damage is found, what is never lost."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_worlds import tiny_config, train_rank
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from neoxlite.checkpoint.folder import Manifest, find, offer, saved_iterations
from neoxlite.checkpoint.load import verify
from neoxlite.checkpoint.save import remove_old
from neoxlite.checkpoint.start import choose, required
from neoxlite.errors import CheckpointError
from neoxlite.parallel.topology import Topology


@pytest.fixture(scope="session")
def saved(world: Any, text_data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train 10 iterations on two ranks and return the folder with the checkpoints of iterations 5 and 10."""
    from neoxlite.training.environment import RunFiles

    base = tmp_path_factory.mktemp("保存 先")
    root = base / "チェックポイント"
    cfg = tiny_config(base / "run.yml", 2, data_path=text_data, save=str(root), checkpoint_factor=5)
    world.run(2, train_rank, cfg, RunFiles(), {})
    return root


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """Return a copy of the two checkpoints, to damage."""
    return Path(shutil.copytree(saved, tmp_path / "ck"))


def check(folder: Path) -> None:
    """Do what a load does before it reads tensors."""
    verify(folder, Manifest.read(folder), Topology())


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


def _truncate(folder: Path) -> str:
    with (folder / "layer_03.safetensors").open("r+b") as file:
        file.truncate(100)
    return r"layer_03.safetensors has 100 bytes, [\d,]+ were written"


def _flip_a_bit(folder: Path) -> str:
    path = folder / "optimizer_02-0000.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return r"optimizer_02-0000.safetensors has changed .*checksum"


def _remove_a_file(folder: Path) -> str:
    (folder / "layer_00.safetensors").unlink()
    return "layer_00.safetensors cannot be read: No such file"


def _remove_the_manifest(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return "no whole checkpoint: it has no manifest.json"


def _garble_the_manifest(folder: Path) -> str:
    (folder / "manifest.json").write_bytes(b'{"format": "neoxlite-1", "fi\xff')
    return "manifest.json cannot be read"


def _empty_the_manifest(folder: Path) -> str:
    (folder / "manifest.json").write_text('{"format": "neoxlite-1"}')
    return "manifest.json is damaged"


@pytest.mark.parametrize(
    "damage",
    [_truncate, _flip_a_bit, _remove_a_file, _remove_the_manifest, _garble_the_manifest, _empty_the_manifest],
)
def test_damage_is_named_and_the_checkpoint_before_offered(damage: Callable[[Path], str], copy: Path) -> None:
    """Each kind of damage is found before a tensor is read, with the file's name and the iteration to fall back on."""
    folder = copy / "global_step10"
    message = damage(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        check(folder)
    assert str(folder) in caught.value.message
    assert "--iteration 5" in (caught.value.hint or "")


def test_a_damaged_older_checkpoint_is_not_offered(copy: Path) -> None:
    """The fallback is the newest whose files have their sizes; without one the hint says so."""
    _truncate(copy / "global_step5")
    assert "no older checkpoint" in offer(copy / "global_step10")


def test_the_command_names_damage_and_touches_nothing(command: Any, copy: Path, text_data: str, config_of: Any) -> None:
    """``train`` on a damaged checkpoint ends with one line and its hint, and leaves every file as it was."""
    _flip_a_bit(copy / "global_step10")
    config_of(1, data_path=text_data, save=str(copy), load=str(copy), checkpoint_factor=5, train_iters=12)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 1
    assert "optimizer_02-0000.safetensors" in err
    assert "--iteration 5" in err
    assert "Traceback" not in err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_checkpoint_of_gpt_neox_is_recognised(tmp_path: Path) -> None:
    """Its folder is named as what it is, not as a damaged one."""
    folder = tmp_path / "global_step3"
    folder.mkdir()
    (folder / "mp_rank_00_model_states.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="a checkpoint that GPT-NeoX wrote") as caught:
        Manifest.read(folder)
    assert str(caught.value.hint).startswith("training goes on from it as it is; for everything else ")


def test_which_checkpoint_is_found(copy: Path) -> None:
    """``latest`` decides, or the iteration that is asked for; what is not there is listed."""
    assert find(copy) == copy / "global_step10"
    assert find(copy, 5) == copy / "global_step5"
    with pytest.raises(CheckpointError, match="iteration 7") as caught:
        find(copy, 7)
    assert caught.value.hint == "present: 5, 10"
    (copy / "latest").write_text("global_step12")
    with pytest.raises(CheckpointError, match="global_step12"):
        find(copy)
    (copy / "latest").unlink()
    with pytest.raises(CheckpointError, match="no file 'latest'"):
        find(copy)
    assert find(copy / "nowhere") is None


def test_where_a_run_starts(copy: Path, tmp_path: Path) -> None:
    """A first run starts with one warning; a run that would start at 0 beside checkpoints is refused."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert choose(copy, copy, None) == (copy / "global_step10", None)
    assert choose(None, None, None) == (None, None)
    assert choose(None, empty, None) == (None, None)
    for load in (empty, tmp_path / "absent"):
        folder, warning = choose(load, load, None)
        assert folder is None
        assert warning is not None
        assert str(load) in warning
    for load in (None, empty, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match="up to iteration 10"):
            choose(load, copy, None)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match="holds files, but no checkpoint"):
        choose(other, empty, None)
    with pytest.raises(CheckpointError, match="is a file"):
        choose(other / "notes.txt", None, None)


def test_a_load_without_a_checkpoint_names_the_one_that_was_meant(copy: Path) -> None:
    """A first run with a typo in load starts with one warning that has the nearest name; --require-load ends it."""
    root = copy.parent
    (root / "checkpoints").mkdir()
    copy.rename(root / "checkpoints" / "2.7B 日本")
    folder, warning = choose(root / "checkpoints" / "2-7B 日本", root / "new", None)
    assert folder is None
    assert warning is not None
    assert warning.endswith(f"did you mean {root}/checkpoints/2.7B 日本 (iteration 10)?")
    assert "did you mean" in (choose(root / "checkpoint" / "2.7B 日本", root / "new", None)[1] or "")
    assert "did you mean" not in (choose(root / "elsewhere" / "x", root / "new", None)[1] or "")
    with pytest.raises(CheckpointError, match=r"--require-load: load: .* has no checkpoint") as caught:
        required(str(root / "checkpoints" / "2-7B 日本"), None)
    assert caught.value.hint == f"did you mean {root}/checkpoints/2.7B 日本?"
    with pytest.raises(CheckpointError, match="load is not set"):
        required(None, None)
    assert required(str(root / "checkpoints" / "2.7B 日本"), 5).name == "global_step5"


def test_a_load_of_another_format_is_told_the_line_that_converts_it(tmp_path: Path) -> None:
    """A Hugging Face folder, a checkpoint of GPT-NeoX, and one checkpoint's own folder instead of its parent."""
    hf = tmp_path / "hf"
    hf.mkdir()
    (hf / "config.json").write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        choose(hf, None, None)
    assert caught.value.hint == (
        f"it is a Hugging Face folder: neoxlite convert from-hf {hf} NEW_FOLDER, then load NEW_FOLDER"
    )
    golden = Path(__file__).parents[2] / "golden" / "checkpoint" / "pipe"
    folder, _ = choose(golden, None, None)
    assert folder == golden / "global_step3"
    with pytest.raises(CheckpointError, match="is a checkpoint that GPT-NeoX wrote") as caught:
        Manifest.read(folder)
    assert caught.value.hint == (
        "training goes on from it as it is; for everything else convert it: "
        f"neoxlite convert from-neox {golden} {golden}-neoxlite CONFIG.yml --iteration 3"
    )
    with pytest.raises(CheckpointError) as caught:
        choose(golden / "global_step3", None, None)
    assert caught.value.hint == f"it is one checkpoint itself: set load: {golden} and --iteration"


def test_old_checkpoints_go_by_number(tmp_path: Path) -> None:
    """The last two up to the newest stay, 10 counts after 9, and those of a later iteration are left alone."""
    for iteration in (8, 9, 10, 11, 50):
        (tmp_path / f"global_step{iteration}").mkdir()
    (tmp_path / "global_step_notes").mkdir()
    remove_old(tmp_path, 2, 11)
    assert saved_iterations(tmp_path) == [10, 11, 50]
    assert (tmp_path / "global_step_notes").is_dir()


def test_keep_last_n_checkpoints_in_a_run(train: Any, tmp_path: Path) -> None:
    """Of saves at 2, 4, 6, 8, 10 the last two remain; a leftover of a crashed save is cleared away."""
    root = tmp_path / "ck"
    (root / ".global_step2.tmp").mkdir(parents=True)
    (root / ".global_step2.tmp" / "layer_00.safetensors").write_bytes(b"half")
    train(1, save=str(root), checkpoint_factor=2, keep_last_n_checkpoints=2)
    assert saved_iterations(root) == [8, 10]
    assert not list(root.glob(".*"))


def test_log_spaced_and_extra_saves(train: Any, tmp_path: Path) -> None:
    """checkpoint_scale log saves at powers of the factor, extra_save_iters adds to them, 0 is before training."""
    train(1, save=str(tmp_path / "ck"), checkpoint_scale="log", checkpoint_factor=3, extra_save_iters=[0, 7])
    assert saved_iterations(tmp_path / "ck") == [0, 1, 3, 7, 9, 10]


def test_the_same_iteration_can_be_saved_again(train: Any, copy: Path) -> None:
    """A run resumed from an older iteration replaces the newer checkpoint, which is then whole and the latest."""
    (copy / "global_step10" / "old").touch()
    train(2, save=str(copy), load=str(copy), checkpoint_factor=5, iteration=5)
    check(copy / "global_step10")
    assert saved_iterations(copy) == [5, 10]
    assert not list(copy.glob(".*"))
    assert not (copy / "global_step10" / "old").exists()


def _limit_file_size(ranks: Any, files: Any) -> None:
    # Writing beyond it fails as on a full disk; Python ignores the signal that comes with it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


def test_a_full_disk_keeps_the_checkpoint_before(world: Any, train: Any, copy: Path) -> None:
    """A save that cannot write ends the run with a message on every rank; the older one stays the latest."""
    with pytest.raises(AssertionError, match="the checkpoint could not be written"):
        train(2, save=str(copy), load=str(copy), checkpoint_factor=100, train_iters=12, override_lr_scheduler=True,
              at={1: _limit_file_size})  # fmt: skip
    assert find(copy) == copy / "global_step10"
    check(copy / "global_step10")
    assert saved_iterations(copy) == [5, 10]
    assert not list(copy.glob(".*"))  # the half that was written does not keep the disk full


@pytest.mark.parametrize("layers", [2, 4, 5])
def test_another_depth_is_named_as_such(layers: int, command: Any, copy: Path, config_of: Any, text_data: str) -> None:
    """Fewer and more blocks than the checkpoint's 3 are told as a number of layers, not as a file that is missing."""
    where = {"save": str(copy), "load": str(copy), "checkpoint_factor": 5}
    config_of(1, data_path=text_data, **where, finetune=True, num_layers=layers)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 1
    assert f"has 3 layers, this configuration {layers}" in err


@pytest.mark.parametrize(
    ("table", "key", "value", "told"),
    [
        ("training", "iteration", "ten", "training.iteration is 'ten'"),
        ("training", "iteration", -1, "training.iteration is '-1'"),
        ("training", "consumed_samples", None, "training.consumed_samples is missing"),
        ("training", "with_optimizer", 1, "training.with_optimizer is '1'"),
        ("training", "schedule", [1], r"training.schedule is '\[1\]'"),
        ("training", "architecture", 3, "training.architecture is no table"),
        ("training", "loss_scale", {"scale": 4.0}, "training.loss_scale is "),
        ("files", "layer_00.safetensors", {"bytes": "many"}, "files.layer_00.safetensors has no bytes and crc32"),
        (None, "files", [["a", 1]], "files is no table"),
        (None, "training", "x", "training is no table"),
    ],
)
def test_a_manifest_with_wrong_fields_is_damage(table: str | None, key: str, value: Any, told: str, copy: Path) -> None:
    """A field that is missing (None here) or of another type is named, and the checkpoint before it offered."""
    folder = copy / "global_step10"
    manifest = json.loads((folder / "manifest.json").read_text())
    target = manifest if table is None else manifest[table]
    target[key] = value
    if value is None:
        del target[key]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=told) as caught:
        Manifest.read(folder)
    assert "--iteration 5" in (caught.value.hint or "")


def test_a_crash_between_the_renames_of_a_save_loses_nothing(train: Any, copy: Path) -> None:
    """The old folder that was moved aside is found under its name again, also by the next save."""
    aside = copy / ".global_step10.replaced"
    (copy / "global_step10").rename(aside)
    assert find(copy) == copy / "global_step10"
    check(copy / "global_step10")
    (copy / "global_step10").rename(copy / ".global_step10.replaced.tmp")  # as an older version named it
    train(2, save=str(copy), load=str(copy), checkpoint_factor=2, iteration=5, train_iters=6,
          override_lr_scheduler=True)  # fmt: skip
    check(copy / "global_step10")
    assert saved_iterations(copy) == [5, 6, 10]
    assert not list(copy.glob(".*"))


def test_a_crash_in_the_save_itself_keeps_the_old_folder(
    train: Any, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second rename that fails puts the old checkpoint back, and the half is cleared away."""
    real = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.startswith(".global_step10.") and self.name.endswith(".tmp"):
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    (copy / "global_step10" / "old").touch()
    with pytest.raises(AssertionError, match="No space left"):
        train(1, save=str(copy), load=str(copy), checkpoint_factor=5, iteration=5)
    assert (copy / "global_step10" / "old").exists()
    assert not list(copy.glob(".*"))


def test_another_model_s_checkpoint_is_refused_with_the_parameter(
    command: Any, copy: Path, config_of: Any, text_data: str
) -> None:
    """The first key or parameter that does not fit is named with both values, also where finetune takes weights."""
    where = {"save": str(copy), "load": str(copy), "checkpoint_factor": 5}
    config_of(1, data_path=text_data, **where, hidden_size=64)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 1
    assert "hidden_size: 32 -> 64" in err
    config_of(1, data_path=text_data, **where, hidden_size=64, finetune=True)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 1
    assert "word_embeddings.weight has the shape [512, 32], this model's [512, 64]" in err
    config_of(1, data_path=text_data, **where, make_vocab_size_divisible_by=1000)
    assert "padded vocabulary of 512, this run 1000" in command("train", str(copy.parent / "tiny.yml"))[2]


def test_a_piece_of_optimizer_state_that_is_missing_is_named(
    command: Any, copy: Path, config_of: Any, text_data: str
) -> None:
    """A checkpoint written without some moments is not trained on as if they were zero."""
    folder = copy / "global_step10"
    path = next(folder.glob("optimizer_07-*.safetensors"))
    tensors = load_file(path)
    dropped = next(key for key in tensors if key.startswith("exp_avg/"))
    save_file({key: tensor for key, tensor in tensors.items() if key != dropped}, path)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"][path.name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    config_of(1, data_path=text_data, save=str(copy), load=str(copy), checkpoint_factor=5, train_iters=10)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 1
    assert "elements of exp_avg of 7.final_linear.weight" in err


def test_a_changed_schedule_is_refused_without_a_switch(
    command: Any, copy: Path, config_of: Any, text_data: str
) -> None:
    """Longer training changes the decay: the message names the numbers and both switches."""
    where = {"save": str(copy), "load": str(copy), "checkpoint_factor": 5}
    config_of(1, data_path=text_data, **where, train_iters=12)
    code, _, err = command("train", str(copy.parent / "tiny.yml"))
    assert code == 2
    assert "end_iter 10 -> 12" in err
    assert "override_lr_scheduler" in err


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
    assert "is no folder" in err
