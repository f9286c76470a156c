"""Saves that follow each other: what is kept, what is replaced, what is cleared away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from neoxlite.checkpoint import save as saving
from neoxlite.checkpoint.folder import find, read_latest, saved_iterations
from neoxlite.checkpoint.save import remove_old
from neoxlite.errors import CheckpointError
from neoxlite.training.schedule import save_iterations
from tests.neoxlite.checkpoint.made import NAMES, check, save_numbers


def test_old_checkpoints_go_by_number(tmp_path: Path) -> None:
    """The last two up to the newest stay, 10 counts after 9, and those of a later iteration are left alone."""
    for iteration in (8, 9, 10, 11, 50):
        (tmp_path / f"global_step{iteration}").mkdir()
    (tmp_path / "global_step_notes").mkdir()
    remove_old(tmp_path, 2, 11)
    assert saved_iterations(tmp_path) == [10, 11, 50]
    assert (tmp_path / "global_step_notes").is_dir()


def test_latest_is_on_the_disk_before_older_checkpoints_go(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave a `latest` that names one that is gone: the folder is synced behind its rename."""
    seen: list[Any] = []
    real = saving.sync_folder

    def sync(folder: Path) -> None:
        real(folder)
        seen.append((folder, read_latest(made)))

    monkeypatch.setattr(saving, "sync_folder", sync)
    monkeypatch.setattr(saving, "remove_old", lambda *_: seen.append("removal"))
    save_numbers(made, 11, keep_last=1)
    assert seen[-2:] == [(made, "global_step11"), "removal"]


def test_keep_last_n_checkpoints_in_a_run(train: Any, tmp_path: Path) -> None:
    """Of saves at 1, 2, 3 the last two remain; a leftover of a crashed save is cleared away."""
    root = tmp_path / "ck"
    (root / ".global_step2.tmp").mkdir(parents=True)
    (root / ".global_step2.tmp" / "layer_00.safetensors").write_bytes(b"half")
    train(1, save=str(root), checkpoint_factor=1, keep_last_n_checkpoints=2, train_iters=3)
    assert saved_iterations(root) == [2, 3]
    assert not list(root.glob(".*"))


def test_log_spaced_and_extra_saves(train: Any, tmp_path: Path) -> None:
    """checkpoint_scale log saves at powers of the factor, extra_save_iters adds to them, 0 is before training."""
    train(1, save=str(tmp_path / "ck"), checkpoint_scale="log", checkpoint_factor=3, extra_save_iters=[0, 7])
    assert saved_iterations(tmp_path / "ck") == [0, 1, 3, 7, 9, 10]


def test_a_factor_next_to_1_saves_every_iteration(config_of: Any) -> None:
    """Its powers up to train_iters are more than can be counted."""
    cfg = config_of(1, save="x", checkpoint_factor=1.000000000001, checkpoint_scale="log", train_iters=9)
    assert save_iterations(cfg) == {1, 2, 3, 4, 5, 6, 7, 8, 9}


def test_the_same_iteration_can_be_saved_again(made: Path) -> None:
    """The new checkpoint takes the place of the one of its iteration, whole, and is the latest."""
    (made / "global_step10" / "old").touch()
    save_numbers(made, 10, numel=2000)
    check(made / "global_step10")
    assert load_file(made / "global_step10" / NAMES[0])["weight"].numel() == 2000
    assert saved_iterations(made) == [5, 10]
    assert not list(made.glob(".*"))
    assert not (made / "global_step10" / "old").exists()


def test_a_crash_between_the_renames_of_a_save_loses_nothing(made: Path) -> None:
    """The old folder that was moved aside is found under its name again, also by the next save."""
    aside = made / ".global_step10.replaced"
    (made / "global_step10").rename(aside)
    assert find(made) == made / "global_step10"
    check(made / "global_step10")
    (made / "global_step10").rename(made / ".global_step10.replaced.tmp")  # as an older version named it
    save_numbers(made, 6)
    check(made / "global_step10")
    assert saved_iterations(made) == [5, 6, 10]
    assert not list(made.glob(".*"))


def test_a_crash_in_the_save_itself_keeps_the_old_folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second rename that fails puts the old checkpoint back, and the half is cleared away."""
    real = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.startswith(".global_step10.") and self.name.endswith(".tmp"):
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    (made / "global_step10" / "old").touch()
    with pytest.raises(CheckpointError, match="No space left"):
        save_numbers(made, 10)
    assert (made / "global_step10" / "old").exists()
    assert not list(made.glob(".*"))


def test_what_cannot_be_cleared_away_does_not_fail_a_save(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed file that a reader has open stays on NFS under another name, and so does its folder, till later."""
    real = shutil.rmtree

    def busy(path: Path, *arguments: Any, ignore_errors: bool = False, **keywords: Any) -> None:
        if not ignore_errors:
            raise OSError(39, "Directory not empty", str(path))

    (made / ".global_step4.tmp").mkdir()
    monkeypatch.setattr("neoxlite.checkpoint.save.shutil.rmtree", busy)
    save_numbers(made, 10, numel=2000)
    save_numbers(made, 11, keep_last=1)
    assert saved_iterations(made) == [11]
    assert find(made) == made / "global_step11"
    check(made / "global_step11")
    monkeypatch.setattr("neoxlite.checkpoint.save.shutil.rmtree", real)
    save_numbers(made, 12)
    assert not list(made.glob(".*"))


def test_clocks_say_nothing(made: Path) -> None:
    """Times of files that run backwards change neither which checkpoint is the latest nor which ones are kept."""
    for years, iteration in enumerate((10, 5)):
        for path in (made / f"global_step{iteration}", *(made / f"global_step{iteration}").iterdir()):
            os.utime(path, (86400 * 365 * years, 86400 * 365 * years))
    os.utime(made / "latest", (0, 0))
    assert find(made) == made / "global_step10"
    save_numbers(made, 11, keep_last=2)
    assert saved_iterations(made) == [10, 11]
