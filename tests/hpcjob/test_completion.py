"""Shell completion: the scripts, and what they are answered."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcjob.cli import main
from hpcjob.cli.group import cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shell gets a script that asks hpcjob, and that the shell can read where it is installed."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_HPCJOB_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The ones that are known are named."""
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def complete(place: Path, *words: str) -> list[str]:
    """Return the completions of the last word, as bash asks for them, and check that nothing heavy was imported."""
    code = (
        "import sys\nfrom hpcjob.cli import main\n"
        "try:\n    main([])\nfinally:\n    assert not {'submitit', 'numpy', 'rich', 'jinja2'} & set(sys.modules)"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "XDG_CONFIG_HOME": str(place.parent / "config"),
        "XDG_STATE_HOME": str(place.parent / "state"),
        "_HPCJOB_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["hpcjob", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=place, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_profiles_and_job_files(own_place: Path) -> None:
    """Names of commands, of profiles (the user's too) and of job files, shipped or here."""
    (own_place / "cluster_profiles").mkdir()
    (own_place / "cluster_profiles/kumo.yml").write_text("extends: lab\n")
    (own_place / "jobs").mkdir()
    (own_place / "jobs/mine.yml").write_text("command: [a]\n")
    help_text = CliRunner().invoke(cli, ["--help"]).output
    commands = re.findall(r"^  ([a-z]+)  ", help_text.partition("Commands:")[2], re.MULTILINE)
    assert len(commands) > 10
    assert complete(own_place, "") == commands
    assert complete(own_place, "re") == [name for name in commands if name.startswith("re")]
    assert complete(own_place, "rend") == ["render"]
    found = complete(own_place, "render", "--profile", "ab")
    assert {"abci2", "abci3"} <= set(found)
    assert all(name.startswith("ab") for name in found)
    assert len(found) == len(set(found))
    assert complete(own_place, "render", "--profile", "kum") == ["kumo"]
    assert "jobs/mine.yml" in complete(own_place, "submit", "jobs/m")
    assert "jobs/2.7B/dp.yml" in complete(own_place, "submit", "jobs/2.7B/")
    assert complete(own_place, "profile", "show", "wis") == ["wisteria"]
    assert complete(own_place, "explain", "la") == ["latest", "la"]  # the second stands for the files of the shell
