"""Weights & Biases is never the reason that a run fails or waits."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from forked_worlds import TINY, command_rank

from neoxlite.training import wandb_log
from neoxlite.training.wandb_log import WandbLog, start_wandb

_CLONE_NEWNET = 0x40000000  # sched.h
KEY = {"WANDB_API_KEY": "0" * 40}


class Library:
    """Stands for the library: notes what it is told, and fails where a test wants it to."""

    def __init__(self, folder: Path, fail: frozenset[str] = frozenset()) -> None:
        self.told: list[tuple[str, Any]] = []
        self.folder = folder
        self.fail = fail

    def _note(self, what: str, value: Any = None) -> None:
        self.told.append((what, value))
        if what in self.fail:
            raise RuntimeError(f"{what} went wrong\nand a second line")

    def Settings(self, **keywords: Any) -> dict[str, Any]:
        return keywords

    def init(self, *, mode: str, **keywords: Any) -> Any:
        self._note(f"init {mode}", keywords)
        return types.SimpleNamespace(
            dir=str(self.folder / "files"),
            log=lambda values, step: self._note("log", (step, values)),
            finish=lambda: self._note("finish"),
        )


@pytest.fixture
def begin(
    config_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[WandbLog | None, Library, list[str]]]:
    """Return a function that begins a run with a stand-in for the library: (log, library, lines said)."""

    def start(
        environ: Mapping[str, str], *, fail: frozenset[str] = frozenset(), **keys: Any
    ) -> tuple[WandbLog | None, Library, list[str]]:
        library, said = Library(tmp_path / "wandb" / "run", fail), []
        monkeypatch.setitem(sys.modules, "wandb", library)
        log = start_wandb(config_of(1, **keys), said.append, {"HOME": str(tmp_path), **environ})
        return log, library, said

    return start


def test_without_internet_it_is_offline_at_once(begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the job script says is enough: nothing is probed. At the end stands the line that sends the run."""
    monkeypatch.setattr(wandb_log, "_unreachable", pytest.fail)
    keys = {"wandb_project": "p", "wandb_group": "g", "wandb_team": "t", "wandb_run_name": "名前"}
    host = {"wandb_host": "https://w.example"}
    log, library, said = begin({**KEY, "NEOXLITE_INTERNET": "0"}, use_wandb=True, **keys, **host)
    log.log({4: {"train/lm_loss": 2.0}, 5: {"train/lm_loss": 1.0}})
    log.close()
    init, *rest = library.told
    assert init[0] == "init offline"
    assert {name: init[1][name] for name in ("project", "group", "entity", "name")} == {
        "project": "p",
        "group": "g",
        "entity": "t",
        "name": "名前",
    }
    assert init[1]["settings"]["base_url"] == "https://w.example"
    assert rest == [("log", (4, {"train/lm_loss": 2.0})), ("log", (5, {"train/lm_loss": 1.0})), ("finish", None)]
    assert said == [
        "Weights & Biases: recording on this machine only: the profile says that compute nodes have no internet",
        f"Weights & Biases: from a machine with internet run: wandb sync {tmp_path / 'wandb' / 'run'}",
    ]


@pytest.mark.parametrize(
    ("use_wandb", "environ", "begun"),
    [
        (None, {}, []),
        (None, KEY, ["init offline"]),
        (False, KEY, []),
        (True, {}, ["init offline"]),
        (True, {**KEY, "WANDB_MODE": "disabled"}, []),
        (True, {**KEY, "WANDB_MODE": "offline"}, ["init offline"]),
        (True, {**KEY, "NEOXLITE_INTERNET": "1"}, ["init online"]),
    ],
)
def test_when_and_how_it_begins(
    use_wandb: bool | None, environ: dict[str, str], begun: list[str], begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """null begins where there is a key, as in GPT-NeoX; without one nothing is sent; a server that answers is used."""
    answers = environ.get("NEOXLITE_INTERNET") == "1"
    monkeypatch.setattr(wandb_log, "_unreachable", lambda host: None if answers else f"{host} is not there")
    log, library, _ = begin(environ, use_wandb=use_wandb)
    assert [what for what, _ in library.told] == begun
    assert (log is not None) == bool(begun)


def test_a_key_of_wandb_login_counts(begin: Any, tmp_path: Path) -> None:
    """``wandb login`` writes ~/.netrc; a damaged one is as none."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine api.wandb.ai login user password secret\n")
    netrc.chmod(0o600)
    assert begin({"NEOXLITE_INTERNET": "0"})[0] is not None
    assert begin({"NEOXLITE_INTERNET": "0"}, wandb_host="https://other.example")[0] is None
    netrc.write_bytes(b"machine \xff")
    assert begin({"NEOXLITE_INTERNET": "0"})[0] is None


def test_a_server_that_does_not_answer_is_given_up(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address where nobody listens, a listener that says nothing, a name that does not exist, a dead proxy."""
    monkeypatch.setattr(wandb_log, "PROBE_S", 0.3)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        hosts = {
            f"http://127.0.0.1:{closed.getsockname()[1]}": "cannot be reached (",
            f"http://127.0.0.1:{silent.getsockname()[1]}": "",
            "nonsense": "cannot be reached (unknown url type",
        }
        for host, why in hosts.items():
            _, library, said = begin(KEY, use_wandb=True, wandb_host=host)
            assert [what for what, _ in library.told] == ["init offline"]
            assert host in said[0]
            assert why in said[0]
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert begin(KEY, use_wandb=True, wandb_host="http://w.example")[1].told[0][0] == "init offline"


def test_errors_of_the_library_end_its_part_only(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Online fails: offline. Offline fails, or a call fails later: one warning, and nothing more is tried."""
    monkeypatch.setattr(wandb_log, "_unreachable", lambda host: None)
    log, library, said = begin(KEY, use_wandb=True, fail=frozenset({"init online"}))
    assert [what for what, _ in library.told] == ["init online", "init offline"]
    assert said == [
        "WARNING: Weights & Biases cannot be reached, recording on this machine only: init online went wrong"
    ]
    assert log is not None
    log, library, said = begin(KEY, use_wandb=True, fail=frozenset({"init online", "init offline"}))
    assert log is None
    assert said[-1] == "WARNING: Weights & Biases records nothing, training continues: init offline went wrong"
    log, library, said = begin(KEY, use_wandb=True, fail=frozenset({"log", "finish"}))
    log.log({1: {"a": 1.0}, 2: {"a": 2.0}})
    log.close()
    assert [what for what, _ in library.told] == ["init online", "log"]
    assert said == ["WARNING: Weights & Biases has stopped recording, training continues: log went wrong"]


def test_an_end_that_hangs_is_not_waited_for(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library waits for a network that has gone: the run ends, with the line that sends the rest."""
    import threading

    monkeypatch.setattr(wandb_log, "FINISH_S", 0.05)
    monkeypatch.setattr(wandb_log, "_unreachable", lambda host: None)
    log, _, said = begin(KEY, use_wandb=True)
    release = threading.Event()
    log._run.finish = release.wait
    log.close()
    release.set()
    assert said[-1].startswith("Weights & Biases: from a machine with internet run: wandb sync ")


def test_a_run_goes_on_without_the_library(
    train: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """use_wandb: true where wandb is not installed costs one warning."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    run = train(1, use_wandb=True, train_iters=2)
    assert run.outcomes[0].outcome == "completed"
    lines = [line for line in capfd.readouterr().out.splitlines() if "wandb" in line]
    assert len(lines) == 1
    assert lines[0].startswith("WARNING: use_wandb: ")
    assert lines[0].endswith("training continues without (pip install 'hpcjob[wandb]')")


def _cut_off(ranks: Any, cut: str, folder: Path, environ: dict[str, str]) -> tuple[int, str, str]:
    """Train in a network namespace of this process without a way out, or behind a proxy that is not there."""
    warnings.simplefilter("ignore")  # of the library, as in a process of its own
    os.chdir(folder)
    if cut == "namespace":
        if ctypes.CDLL(None).unshare(_CLONE_NEWNET):
            return -1, "", "a container without the right to make a namespace"
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    else:
        environ |= dict.fromkeys(("HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:1")
    return command_rank(ranks, ["train", "run.yml"], environ)


@pytest.mark.ci
@pytest.mark.parametrize("cut", ["namespace", "proxy"])
def test_the_real_library_with_the_network_cut_off(cut: str, world: Any, text_data: str, tmp_path: Path) -> None:
    """A whole run ends completed, with the run recorded on the disk."""
    pytest.importorskip("wandb")
    if cut == "namespace" and (os.geteuid() != 0 or shutil.which("ip") is None):
        pytest.skip("needs root and ip")
    (tmp_path / "run.yml").write_text(
        yaml.safe_dump({**TINY, "data_path": text_data, "train_iters": 3, "use_wandb": True})
    )
    ((code, out, err),) = world.run(1, _cut_off, cut, tmp_path, {**KEY, "HOME": str(tmp_path)})
    if code < 0:
        pytest.skip(err)
    assert code == 0, err
    assert "Weights & Biases: recording on this machine only: https://api.wandb.ai cannot be reached" in out
    (line,) = [line for line in out.splitlines() if "wandb sync " in line]
    folder = Path(line.rpartition("wandb sync ")[2])
    assert (tmp_path / folder).is_dir()
    assert list((tmp_path / folder).glob("*.wandb"))
