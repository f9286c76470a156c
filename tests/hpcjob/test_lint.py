"""What looks wrong in a job is said before it is submitted, with what to do; nothing is said of a sound one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.lint import lint, rules
from tests.hpcjob.render.plans import PROFILES, plan

LISTED = Path(__file__).parents[2] / "hpcjob" / "lints.yml"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"NCCL_DEBUG_SUBSYS": "WARN"}, "'WARN' is none of its values"),  # 38 public scripts
        ({"NCCL_BUFFERSIZE": "1"}, "use NCCL_BUFFSIZE"),
        ({"NCCL_SOKET_IFNAME": "eth0"}, "did you mean NCCL_SOCKET_IFNAME?"),
        ({"NCCL_TIMEOUT": "3600"}, "nothing reads it"),
        ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, "use TORCH_NCCL_ASYNC_ERROR_HANDLING"),  # 19 public scripts
        ({"NCCL_DYNAMIC_CHUNK_SIZE": "1"}, "NCCL knows no such variable"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "is left on"),  # 78 public scripts
        ({"NCCL_IB_DISABLE": "yes"}, "none of its values"),
        ({"NCCL_DEBUG": "TRACE"}, "is left on"),
    ],
)
def test_variables(env: dict[str, str], words: str) -> None:
    """Unknown and misspelt names, values that are none, debug settings."""
    (warning,) = lint(plan("lab", env=env))
    assert next(iter(env)) in warning
    assert words in warning


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,^GRAPH", "NCCL_IB_HCA": "mlx5_0:1"},
        {"NCCL_DEBUG": "info", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_OFI_ANYTHING": "1", "CUDA_LAUNCH_BLOCKING": "0"},
        {"ANYTHING": "<x>", "NCCLX": "1", "学習": "1"} | {},
    ],
)
def test_sound_variables(env: dict[str, str]) -> None:
    """Sound values, of plug-ins too, and names that are nothing of NCCL's."""
    assert not lint(plan("lab", env={name: value for name, value in env.items() if name.isascii()}))


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"command": ["torchrun", "a.py"]}, "started once a rank"),  # 9 public scripts
        ({"command": ["python", "-m", "torch.distributed.run", "a.py"]}, "started once a rank"),
        ({"command": ["mpirun", "-np", "8", "a"]}, "a launcher"),
        ({"command": ["bash", "-c", "curl x | bash"]}, "downloaded"),
        ({"command": ["bash", "-c", "pip install x && a"]}, "kind: setup"),
        ({"command": ["bash", "-c", "pkill -f python"]}, "kills by name"),
        ({"command": ["python", "a.py", "--out", "<FIX_ME>"]}, "placeholder"),
    ],
)
def test_words(job: dict[str, Any], words: str) -> None:
    """What stands in a command."""
    (warning,) = lint(plan("lab", **job))
    assert words in warning


def test_words_that_are_sound() -> None:
    """A launcher that is started once, a set-up job that installs, an argument that only looks like a program."""
    once = [{"name": "a", "command": ["torchrun", "a.py"]}]
    assert not lint(plan("lab", steps=once))
    assert not lint(plan("lab", kind="setup", command=["bash", "-c", "pip install x"]))
    assert not lint(plan("lab", command=["python", "a.py", "torchrun"]))
    for name in PROFILES:
        assert not lint(plan(name)), "the shipped run"


def test_rules() -> None:
    """Every rule has a source; no name is both known and renamed; the known names are one list without doubles."""
    book = rules()
    every = [*book.values, *book.renamed, *book.left_on, *book.words]
    assert all(rule.source for rule in every)
    listed = [name for line in book.nccl_names for name in line.split()]
    assert len(listed) == len(set(listed)) > 253, "the field study counted 253"
    assert not {rule.name for rule in book.renamed} & set(listed)


def test_strict(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning is a line on stderr; with --strict nothing is printed or submitted, and the code is 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("a.yml").write_text("kind: cpu\nenv: {NCCL_TIMEOUT: 1}\ncommand: ['true']\n")
    assert main(["render", "a.yml", "-p", "lab"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("#!/bin/bash")
    assert "hpcjob: warning: env.NCCL_TIMEOUT: nothing reads it" in err
    for command in ("render", "submit"):
        assert main([command, "a.yml", "-p", "local", "--strict"]) == 2
        out, err = capfd.readouterr()
        assert not out
        assert "hpcjob: --strict: 1 warning" in err
    assert not (tmp_path / "outputs").exists()
