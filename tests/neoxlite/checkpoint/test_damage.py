"""Damage of every kind is found before a tensor is read, and the checkpoint before it offered."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neoxlite.checkpoint.folder import find
from neoxlite.checkpoint.manifest import Manifest, offer
from neoxlite.errors import CheckpointError
from tests.neoxlite.checkpoint.made import check, save_numbers

FIRST, SECOND = "optimizer_02-0000.safetensors", "optimizer_02-0001.safetensors"


def _truncate(folder: Path) -> str:
    with (folder / "layer_02.safetensors").open("r+b") as file:
        file.truncate(100)
    return r"layer_02.safetensors has 100 bytes, [\d,]+ were written"


def _flip_a_bit(folder: Path) -> str:
    path = folder / "optimizer_02-0000.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return r"optimizer_02-0000.safetensors has changed .*checksum"


def _remove_a_file(folder: Path) -> str:
    (folder / "layer_00.safetensors").unlink()
    return "layer_00.safetensors cannot be read: No such file"


def _exchange_the_ranks(folder: Path) -> str:
    (folder / FIRST).rename(folder / "x")
    (folder / SECOND).rename(folder / FIRST)
    (folder / "x").rename(folder / SECOND)
    return f"{FIRST} has changed .*and 1 more"


def _take_the_file_of_another_iteration(folder: Path) -> str:
    shutil.copy(folder.parent / "global_step5" / FIRST, folder / FIRST)
    return f"{FIRST} has changed .*checksum"


def _take_the_folder_of_another_iteration(folder: Path) -> str:
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / "global_step5", folder)
    return "it is that of iteration 5, and the folder is named for 10"


def _make_a_folder_of_a_file(folder: Path) -> str:
    (folder / FIRST).unlink()
    (folder / FIRST).mkdir()
    return f"{FIRST} (has [0-9,]+ bytes|cannot be read: Is a directory)"


def _remove_the_manifest(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return "not a complete checkpoint: it has no manifest.json"


def _garble_the_manifest(folder: Path) -> str:
    (folder / "manifest.json").write_bytes(b'{"format": "neoxlite-1", "fi\xff')
    return "manifest.json is damaged"


def _empty_the_manifest(folder: Path) -> str:
    (folder / "manifest.json").write_text('{"format": "neoxlite-1"}')
    return "manifest.json is damaged"


def _change_a_number_of_the_manifest(folder: Path) -> str:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"consumed_samples": 0', '"consumed_samples": 8'))
    return "manifest.json is damaged: it has changed since it was written"


def _change_a_checksum_of_the_manifest(folder: Path) -> str:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["files"][FIRST]["crc32"] ^= 1
    path.write_text(json.dumps(content))
    return "manifest.json is damaged: it has changed since it was written"


def _flip_a_bit_in_a_key_of_the_manifest(folder: Path) -> str:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"crc32":', '"brc32":', 1))
    return "manifest.json is damaged: it has other keys than format, crc32, training and files"


def _flip_a_bit_in_the_format_of_the_manifest(folder: Path) -> str:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("neoxlite-1", "neoxlite-3", 1))
    return "manifest.json: format 'neoxlite-3' is unknown"


def _take_the_manifest_of_a_later_version(folder: Path) -> str:
    (folder / "manifest.json").write_text('{"format": "neoxlite-2", "shards": [], "training": {}}')
    return "manifest.json: format 'neoxlite-2' is unknown"


@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_bit_in_a_key_of_the_manifest,
        _flip_a_bit_in_the_format_of_the_manifest,
        _take_the_manifest_of_a_later_version,
        _truncate,
        _flip_a_bit,
        _remove_a_file,
        _exchange_the_ranks,
        _take_the_file_of_another_iteration,
        _take_the_folder_of_another_iteration,
        _make_a_folder_of_a_file,
        _remove_the_manifest,
        _garble_the_manifest,
        _empty_the_manifest,
        _change_a_number_of_the_manifest,
        _change_a_checksum_of_the_manifest,
    ],
)
def test_damage_is_named_and_the_checkpoint_before_offered(damage: Callable[[Path], str], made: Path) -> None:
    """Each kind of damage is found before a tensor is read, with the file's name and the iteration to fall back on."""
    folder = made / "global_step10"
    message = damage(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        check(folder)
    assert str(folder) in caught.value.message
    assert "--iteration 5" in (caught.value.hint or "")


def test_a_damaged_older_checkpoint_is_not_offered(made: Path) -> None:
    """The fallback is the newest whose files have their sizes; without one the hint says so."""
    _truncate(made / "global_step5")
    assert "no older checkpoint" in offer(made / "global_step10")


def test_a_manifest_without_a_checksum_is_read(made: Path) -> None:
    """Older versions wrote none; laid out otherwise it says the same."""
    path = made / "global_step10" / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content, sort_keys=True))
    check(made / "global_step10")
    del content["crc32"]
    path.write_text(json.dumps(content))
    check(made / "global_step10")


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


@pytest.mark.parametrize(
    ("table", "key", "value", "told"),
    [
        ("training", "iteration", "ten", "training.iteration is 'ten'"),
        ("training", "iteration", -1, "training.iteration is '-1'"),
        ("training", "consumed_samples", None, "training.consumed_samples is missing"),
        ("training", "with_optimizer", 1, "training.with_optimizer is '1'"),
        ("training", "schedule", [1], r"training.schedule is '\[1\]'"),
        ("training", "architecture", 3, "training.architecture is not a table"),
        ("training", "loss_scale", {"scale": 4.0}, "training.loss_scale is "),
        ("files", "layer_00.safetensors", {"bytes": "many"}, "files.layer_00.safetensors has no bytes and crc32"),
        (None, "files", [["a", 1]], "files is not a table"),
        (None, "training", "x", "training is not a table"),
    ],
)
def test_a_manifest_with_wrong_fields_is_damage(table: str | None, key: str, value: Any, told: str, made: Path) -> None:
    """A field that is missing (None here) or of another type is named, and the checkpoint before it offered."""
    folder = made / "global_step10"
    manifest = json.loads((folder / "manifest.json").read_text())
    target = manifest if table is None else manifest[table]
    target[key] = value
    if value is None:
        del target[key]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=told) as caught:
        Manifest.read(folder)
    assert "--iteration 5" in (caught.value.hint or "")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def _gibibyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


def _elsewhere(path: Path) -> None:
    path.write_text("../../etc")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (_pipe, "cannot be read: it is not a file"),
        (_folder, "cannot be read: Is a directory"),
        (_circle, "cannot be read: Too many levels of symbolic links"),
        (_binary, "which is not there"),
        (_gibibyte, "which is not there"),
        (_elsewhere, "names '../../etc', which is not there"),
    ],
)
def test_a_latest_that_names_nothing(kind: Callable[[Path], None], told: str, made: Path) -> None:
    """No more of it is read than a name is long, nothing is waited for, and the iterations are listed."""
    (made / "latest").unlink()
    kind(made / "latest")
    with pytest.raises(CheckpointError, match=told) as caught:
        find(made)
    assert len(caught.value.message) < len(str(made)) + 500
    assert caught.value.hint == "choose one with --iteration; present: 5, 10"
    assert find(made, 10) == made / "global_step10"


@pytest.mark.full
def test_no_bit_of_a_checkpoint_changes_unseen(tmp_path: Path) -> None:
    """Every bit of the manifest and of a file of tensors: each flip is told, and the checkpoint before it offered."""
    for iteration in (5, 10):
        save_numbers(tmp_path, iteration, numel=1)
    folder = tmp_path / "global_step10"
    for path in (folder / "manifest.json", folder / FIRST):
        data = path.read_bytes()
        for bit in range(len(data) * 8):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with pytest.raises(CheckpointError) as caught:
                check(folder)
            assert "--iteration 5" in (caught.value.hint or ""), bit
        path.write_bytes(data)
