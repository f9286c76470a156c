"""Keep what `neoxlite evaluate` finds, and make a table of it.

    python evaluate.py losses/1000.json CONFIG... --load checkpoints --iteration 1000
    python evaluate.py --table losses

The first form runs `neoxlite evaluate` with all words after the file, in whose place its JSON stands at the end; the
second writes losses/table.tsv, and prints it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def evaluate(result: Path, words: list[str]) -> int:
    """Run `neoxlite evaluate` and write its JSON to ``result``, which is there whole or not at all."""
    argv = [sys.executable, "-m", "neoxlite", "evaluate", *words, "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode == 0 and os.environ.get("RANK", "0") == "0":
        unfinished = result.with_suffix(".tmp")
        unfinished.write_text(done.stdout.strip().splitlines()[-1] + "\n")
        unfinished.replace(result)
    return done.returncode


def table(folder: Path) -> int:
    """Write a row for each result of ``folder``, in the order of the numbers that they are named by."""
    results = sorted(folder.glob("*.json"), key=lambda path: (len(path.stem), path.stem))
    if not results:
        print(f"{folder}: there is no result in it (evaluate.py writes them)", file=sys.stderr)
        return 1
    rows = [{"result": path.stem, **_flat(json.loads(path.read_text()))} for path in results]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["\t".join(names), *("\t".join(str(row.get(name, "")) for name in names) for row in rows)]
    text = "\n".join(lines) + "\n"
    (folder / "table.tsv").write_text(text)
    print(text, end="")
    return 0


def _flat(value: dict[str, object], above: str = "") -> dict[str, object]:
    """Return the numbers and words of nested objects under names such as ``valid.loss``."""
    flat: dict[str, object] = {}
    for name, inner in value.items():
        flat.update(_flat(inner, f"{above}{name}.") if isinstance(inner, dict) else {f"{above}{name}": inner})
    return flat


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        sys.exit(table(Path(sys.argv[2])))
    sys.exit(evaluate(Path(sys.argv[1]), sys.argv[2:]))
