"""What is read before, or without, torch."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "neoxlite.checkpoint.folder",
    "neoxlite.checkpoint.tokenizer_files",
    "neoxlite.cli.evaluate",
    "neoxlite.cli.generate",
    "neoxlite.cli.launch",
    "neoxlite.cli.train",
    "neoxlite.launch.deepy",
    "neoxlite.launch.run",
    "neoxlite.launch.script",
    "neoxlite.launch.settings",
    "neoxlite.model.prompts",
    "neoxlite.model.spec",
    "neoxlite.optim.schedule",
    "neoxlite.parallel.ranks",
    "neoxlite.parallel.topology",
    "neoxlite.training.environment",
    "neoxlite.training.log_lines",
    "neoxlite.training.outcome",
    "neoxlite.training.progress",
    "neoxlite.training.schedule",
)


def test_these_modules_import_neither_torch_nor_deepspeed() -> None:
    """Ranks, schedules, log lines, outcomes, manifests and the commands' options load at once, on a login node too."""
    code = f"import sys, {', '.join(MODULES)}; print(sorted({{'torch', 'deepspeed'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"
