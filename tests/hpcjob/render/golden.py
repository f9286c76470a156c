"""Golden scripts: ``python -m tests.hpcjob.render.golden`` writes them; look at the difference."""

from __future__ import annotations

import re
import sys
from typing import Any

from hpcjob.plan import Plan
from hpcjob.render import render
from tests.hpcjob.render.plans import GOLDEN, pairs, plan, profile

WHOLE = "abci3.mpirun"
"""The one script that is kept whole; from the others the constant files that they write are left out."""

_HEREDOC = re.compile(r"(<<'(END_OF_\w+)'\n).*?(\n\2\n)", re.DOTALL)


def cases() -> dict[str, Plan]:
    """Return name -> plan of every golden script."""
    made = {f"{name}.{launcher}": plan(name, launcher=launcher) for name, launcher in pairs()}
    made["lab.steps"] = plan("lab", name="準備と学習", extra=["--comment=x"], exclude=["node[1-3]"], **STEPS)
    made["abci3.steps"] = plan("abci3", launcher="pdsh", extra=["-v RTYPE=rt_HF", "-m ae"], reservation="R123", **STEPS)
    made["abci3.container"] = plan(
        "abci3", python={"container": {"image": "my images/neo.sif", "binds": ["/groups/x:/x"]}}
    )
    pyxis = profile("lab", scheduler={"pyxis": True})
    image = {"container": {"image": "docker://nvcr.io#nvidia/pytorch:25.01-py3", "binds": ["/data:/data"]}}
    made["lab.pyxis"] = plan(pyxis, python=image, launcher="torchrun")
    asked = {"limits": {"nofile": 65536, "memlock": "unlimited"}, "bind": "numa", "nodes": 1, "exclusive": True}
    made["lab.asked"] = plan(
        "lab", stage_in=["data/wiki"], stage_out=["results"], qos="long", nodelist=["n[1-2]"], **asked
    )
    made["abci3.asked"] = plan("abci3", stage_in=["データ"], mail=["end"], mail_to="me@example.org", **asked)
    for name in ("lab", "abci3", "abci2", "local"):
        made[f"{name}.array"] = plan(name, **ARRAY)
    return made


ARRAY: dict[str, Any] = {
    "nodes": 1,
    "kind": "cpu",
    "command": ["python", "evaluate.py", "--task={array.value}", "--seed", "{array.index}"],
    "env": {"TASK": "it's {array.value}"},
    "array": ["lambada", "日本語 QA", "it's"],
    "array_limit": 2,
}

STEPS: dict[str, Any] = {
    "source": ["my env.sh"],
    "modules": ["gcc/13.2.0"],
    "module_use": ["/groups/gex12345/module files"],
    "env": {"GREETING": "it's $HOME\n`date`", "LINES": "2"},
    "stop_before_s": 600,
    "cpus_per_gpu": 12,
    "memory": "480G",
    "steps": [
        {"name": "prepare", "command": ["python", "-m", "neoxlite", "data", "collect", "--output", "データ"]},
        {"name": "train", "train": {"configs": ["125M.yml"]}, "env": {"SEED": "1"}},
        {"name": "evaluate", "command": ["bash", "-c", "echo $RANK"], "python": {"venv": "other venv"}},
        {"name": "upload", "command": ["python", "up.py"], "python": {"conda": "my env"}},
    ],
}


def text(name: str, case: Plan) -> str:
    """Return the script of a case as it is kept."""
    script = render(case)
    return script if name == WHOLE else _HEREDOC.sub(r"\1...\3", script)


def main() -> int:
    """Write all golden scripts, and remove those of no case."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for old in GOLDEN.glob("*.sh"):
        old.unlink()
    for name, case in cases().items():
        (GOLDEN / f"{name}.sh").write_text(text(name, case), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
