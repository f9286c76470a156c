"""Which checkpoint a run begins from, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from neoxlite.checkpoint.folder import find
from neoxlite.checkpoint.manifest import Manifest
from neoxlite.checkpoint.start import choose, required
from neoxlite.errors import CheckpointError


def test_which_checkpoint_is_found(made: Path) -> None:
    """``latest`` decides, or the iteration that is asked for; what is not there is listed."""
    assert find(made) == made / "global_step10"
    assert find(made, 5) == made / "global_step5"
    with pytest.raises(CheckpointError, match="iteration 7") as caught:
        find(made, 7)
    assert caught.value.hint == "present: 5, 10"
    assert caught.value.exit_code == 2  # docs/job-file.md: the input was refused
    (made / "latest").write_text("global_step12")
    with pytest.raises(CheckpointError, match="global_step12") as caught:
        find(made)
    assert caught.value.exit_code == 2
    (made / "latest").unlink()
    with pytest.raises(CheckpointError, match="no file 'latest'") as caught:
        find(made)
    assert caught.value.exit_code == 2
    assert find(made / "nowhere") is None


def test_where_a_run_starts(made: Path, tmp_path: Path) -> None:
    """A first run starts with one warning; a run that would start at 0 beside checkpoints is refused."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert choose(made, made, None) == (made / "global_step10", None)
    assert choose(None, None, None) == (None, None)
    assert choose(None, empty, None) == (None, None)
    for load in (empty, tmp_path / "absent"):
        folder, warning = choose(load, load, None)
        assert folder is None
        assert warning is not None
        assert str(load) in warning
    for load in (None, empty, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match="up to iteration 10"):
            choose(load, made, None)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match="holds files, but no checkpoint") as caught:
        choose(other, empty, None)
    assert caught.value.exit_code == 2
    with pytest.raises(CheckpointError, match="is a file") as caught:
        choose(other / "notes.txt", None, None)
    assert caught.value.exit_code == 2
    with pytest.raises(CheckpointError, match="iteration: 5 is to be loaded, but load is not set"):
        choose(None, empty, 5)


def test_an_older_iteration_of_the_run_itself_is_told(made: Path, tmp_path: Path) -> None:
    """--iteration in a job that is started anew goes back each time; into another folder nothing is written over."""
    folder, warning = choose(made, made, 5)
    assert folder == made / "global_step5"
    assert warning is not None
    assert "iteration 5 is loaded, as requested" in warning
    assert "goes up to 10" in warning
    assert choose(made, tmp_path / "new", 5) == (made / "global_step5", None)
    assert choose(made, made, 10) == (made / "global_step10", None)


def test_a_latest_behind_the_newest_checkpoint_is_told(made: Path) -> None:
    """A digit that the disk changed, or a kill just before it was written: nothing is trained again without a word."""
    (made / "latest").write_text("global_step5")
    assert choose(made, made, None) == (
        made / "global_step5",
        f"WARNING: {made}/latest names iteration 5, and {made} goes up to 10: what lies between is trained and saved "
        "again; --iteration 10 continues from there",
    )


def test_a_load_without_a_checkpoint_names_the_one_that_was_meant(made: Path) -> None:
    """A first run with a typo in load starts with one warning that has the nearest name; --require-load ends it."""
    root = made.parent
    (root / "checkpoints").mkdir()
    made.rename(root / "checkpoints" / "2.7B 日本")
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


def test_a_checkpoint_of_gpt_neox_is_recognised(tmp_path: Path) -> None:
    """Its folder is named as what it is, not as a damaged one."""
    folder = tmp_path / "global_step3"
    folder.mkdir()
    (folder / "mp_rank_00_model_states.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="a checkpoint that GPT-NeoX wrote") as caught:
        Manifest.read(folder)
    assert str(caught.value.hint).startswith("training continues from it as it is; for everything else ")


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
        "training continues from it as it is; for everything else convert it: "
        f"neoxlite convert from-neox {golden} {golden}-neoxlite CONFIG.yml --iteration 3"
    )
    with pytest.raises(CheckpointError) as caught:
        choose(golden / "global_step3", None, None)
    assert caught.value.hint == f"it is one checkpoint itself: set load: {golden} and --iteration"
