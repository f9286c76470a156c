"""What the commands import: the login-node tool must start quickly, and without the trainer's packages."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_HEAVY = {"torch", "deepspeed", "transformers", "pydantic", "numpy", "tensorboard", "tokenizers", "mpi4py"}
_ROOT = Path(__file__).parents[2]
_SHOW_MODULES = """
import sys
from hpcjob.cli import main
code = main(sys.argv[1:])
sys.stdout.flush()
print("\\n".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""

# Ctrl-C while `module` is imported: the module's finder is asked for it, and there the signal comes.
_INTERRUPT_AT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
program, module = sys.argv.pop(1), sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
if program == "hpcjob":
    from hpcjob.cli import main
else:
    from neoxlite.cli import main
sys.exit(main())
"""


def imported(place: Path, *arguments: str) -> set[str]:
    """Return the top-level names that a fresh process has imported after a command that succeeds."""
    done = subprocess.run([sys.executable, "-c", _SHOW_MODULES, *arguments], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["render", "--help"],
        ["render", "--profile", "abci3", "--nodes", "2", "--account", "gxx"],
        ["render", "--profile", "local"],
        ["status"],
        ["profile", "list"],
        ["schema", "job"],
    ],
    ids=" ".join,
)
def test_no_heavy_package_is_imported(own_place: Path, arguments: list[str]) -> None:
    """Neither the trainer's packages nor submitit nor rich are loaded where no scheduler is asked."""
    assert imported(own_place, *arguments) & (_HEAVY | {"submitit", "rich"}) == set()


def test_help_imports_no_yaml_and_no_jinja2(own_place: Path) -> None:
    """The list of commands needs click alone."""
    assert imported(own_place, "--help") & {"yaml", "jinja2", "msgspec"} == set()


def test_hpcjob_never_names_the_trainers_packages() -> None:
    """No module of hpcjob imports them, not even inside a function; of neoxlite it uses the shared part alone."""
    for path in sorted((_ROOT / "hpcjob").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] not in _HEAVY - {"numpy"}, (path, name)
                assert not name.startswith("neoxlite") or name.startswith(("neoxlite.common", "neoxlite.config")), path


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("hpcjob status", "click"),
        ("hpcjob status", "hpcjob.cli.status"),
        ("hpcjob status", "hpcjob.tracking.index"),
        ("neoxlite config keys", "click"),
        ("neoxlite config keys", "neoxlite.config.commands.keys"),
    ],
)
def test_ctrl_c_during_an_import_ends_with_130_quietly(own_place: Path, line: str, module: str) -> None:
    """What a command is made of is imported where Ctrl-C is told as no traceback."""
    program, *arguments = line.split()
    command = [sys.executable, "-c", _INTERRUPT_AT, program, module, *arguments]
    done = subprocess.run(command, cwd=own_place, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")  # click ends the line of ^C


def test_ctrl_c_while_python_ends_is_as_quiet(own_place: Path) -> None:
    """All has been written by then."""
    late = f"import atexit, os\natexit.register(os.kill, os.getpid(), {int(signal.SIGINT)})\n"
    start = f"{late}import sys\nfrom hpcjob.cli import main\nsys.exit(main())\n"
    done = subprocess.run([sys.executable, "-c", start, "--version"], cwd=own_place, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "hpcjob, version 0.1.0\n", "")
