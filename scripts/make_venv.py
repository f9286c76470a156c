"""Make or bring up to date ``.venv`` with the project (editable) and one of its extras, pinned by constraints.txt.

A stamp in the environment remembers what it was made from, so that a second call ends at once. Uses only the standard
library: it is the first thing that runs on a fresh machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "hpcjob-stamp.json"
OLDEST = (3, 10)
CONTAINS = {"train": {"train"}, "test": {"train", "test"}, "dev": {"train", "test", "dev"}}


def fingerprint() -> str:
    """Hash of everything that decides what is installed."""
    digest = hashlib.sha256(f"{ROOT}\0{sys.version}".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def read_stamp() -> dict[str, object]:
    """The last finished installation; empty if there was none."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and PYTHON.exists() else {}


def run(command: list[str], what: str) -> None:
    """Run a step, or end with one line naming it; the step's own output is above that line."""
    if subprocess.run(command, check=False, cwd=ROOT).returncode != 0:
        sys.exit(f"make_venv: {what} failed (the reason is above): {' '.join(command)}")


def main() -> None:
    """Install what ``--extra`` asks for unless the stamp says that it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extra", choices=sorted(CONTAINS), default="train")
    extra = parser.parse_args().extra
    if sys.version_info < OLDEST:
        sys.exit(
            f"make_venv: Python {sys.version.split()[0]} is too old, 3.10 or newer is needed: make PYTHON=python3.11"
        )

    wanted = fingerprint()
    stamp = read_stamp()
    if stamp.get("fingerprint") == wanted and extra in CONTAINS.get(str(stamp.get("extra")), set()):
        return
    works = PYTHON.exists() and subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0
    if not works:
        print(f"Making {VENV} with Python {sys.version.split()[0]}", flush=True)
        run([sys.executable, "-m", "venv", "--clear", str(VENV)], "python -m venv (Debian: apt install python3-venv)")
    run([str(PYTHON), str(ROOT / "scripts" / "install_torch.py")], "installing torch")
    print(f"Installing hpcjob[{extra}]", flush=True)
    # Python compiles what is imported when it is; pip would compile all of it, which takes as long as the rest.
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-compile", "-c", "constraints.txt"]
    run([*pip, "-e", f".[{extra}]"], f"pip install of the project with extra '{extra}'")
    STAMP.write_text(json.dumps({"fingerprint": wanted, "extra": extra}), encoding="utf-8")


if __name__ == "__main__":
    main()
