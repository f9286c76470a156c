"""What `hpcjob profile check` hands to a shell: names of a profile are words there, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.loading.overrides import Override
from hpcjob.loading.profiles import read_profile
from hpcjob.profile_check.look import check
from hpcjob.profile_check.probe import Probe


def test_queues_on_this_machine() -> None:
    """It has none: a profile of it that lists some is told so, like one of a cluster without them."""
    profile, _ = read_profile("local", [Override("queues", {"big": {}}, "test")])
    rows = {row.what: row for row in check(profile, None, Probe())[0]}
    assert (rows["queue big"].verdict, rows["queue big"].here) == ("differs", "no such queue")


@pytest.mark.parametrize("name", ["$(touch made)", "a;touch made", "cu da/12 'x"])
def test_names_of_a_profile_are_words(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module or launcher whose name is shell code is looked for by that name: not found, and nothing is run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "modules.sh").write_text('module() { [[ $1 == load ]] || printf "%s\\n" "$#" >>asked; }\n')
    values = {"modules.init": str(tmp_path / "modules.sh"), "modules.load": [name], "launcher.mpirun": name}
    overrides = [Override(key, value, "test") for key, value in values.items()]
    overrides += [Override("scheduler.type", "slurm", "test"), Override("launcher.mpi", True, "test")]
    profile, _ = read_profile("lab", overrides)
    rows = {row.what: row for row in check(profile, None, Probe())[0]}
    assert rows[f"module {name}"].here == "not found"
    assert rows[name].here == "not found"
    assert set((tmp_path / "asked").read_text().split()) == {"3"}  # -t avail NAME
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "modules.sh"]
