"""Several GPUs of one machine through NCCL: is it right, is it fast, and what happens when a rank is killed.

    hpcjob submit benchmarks/gpu/multi.yml --profile local --set profile.node.gpus=2 --follow
    python benchmarks/gpu/multi.py --device cpu --size tiny          # the same on two gloo ranks, in minutes

For any number of GPUs. Five things, each item by itself, written to FOLDER/results.json as soon as it is known; a call
that was cut off, or had failures, goes on where it ended (--again PATTERN measures what is known anew):

* curves: 50 iterations of a 125M model on Python source text, fp32 and bf16, in every layout that two GPUs have (on
  four or more the mixed ones too) against one GPU;
* checkpoints: written by each of these layouts and loaded by each other one, which then goes on from there;
* kill: SIGKILL of one rank of a job in a step, `hpcjob explain`, and the resumed run against the killed one;
* bandwidth: NCCL's collectives by message size;
* speed: 1.3B and 2.7B by layout, beside plain DDP and DeepSpeed's own ZeRO stage 1, with communication and memory.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

# NVLink multicast stays off; the ranks' output is theirs.
OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
# A job's script hands these to its steps; they are not for the runs in here.
NOT_OURS = ("NEOXLITE_STOP_FILE", "NEOXLITE_OUTCOME_FILE", "NEOXLITE_METRICS_FILE", "NEOXLITE_WORLD_SIZE")


def main() -> int:
    """Find out what is not known yet, and print the tables."""
    options = _options()
    environment = {**OFF, "MULTI_DEVICE": options.device, "DS_ACCELERATOR": options.device}
    environment |= {"TOKENIZERS_PARALLELISM": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    os.environ.update(environment)
    for name in NOT_OURS:
        os.environ.pop(name, None)
    options.folder = options.folder.absolute()
    options.folder.mkdir(parents=True, exist_ok=True)
    from multi_table import table

    results = Results(options.folder / "results.json")
    if not options.table:
        _find_out(options, results)
    text = table(results.known)
    (options.folder / "table.txt").write_text(text + "\n")
    print(text, flush=True)
    return int(any("error" in result for result in results.known.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--folder", type=Path, default=Path("runs/multi"), help="where everything goes")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--gpus", type=int, help="GPUs to use, on the CPU ranks (default: all; 2)")
    add("--size", choices=("real", "tiny"), default="real", help="tiny: small models, to try the script")
    add("--models", nargs="+", default=["1-3B", "2-7B"], help="sizes of the speed part")
    add("--only", nargs="+", metavar="PATTERN", help="items such as 'curve bf16*'")
    add("--again", nargs="+", metavar="PATTERN", default=[], help="measure these again")
    add("--together", type=int, default=8, help="items that share the GPUs where that does no harm")
    add("--patience", type=float, default=1, help="factor of all time limits, for a busy machine")
    add(
        "--until-s",
        type=float,
        default=3600,
        help="begin no item after so many seconds; what still runs 30 s later is ended",
    )
    add("--fresh", action="store_true", help="a fresh process for each rank, rather than a forked one")
    add("--table", action="store_true", help="only print what is known")
    return parser.parse_args()


class Results:
    """What is known, item by item, on the disk after each."""

    def __init__(self, path: Path):
        self._path = path
        self.known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, name: str, result: dict[str, Any]) -> None:
        """Keep an item's result."""
        self.known[name] = result
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.known, indent=1) + "\n")
        temporary.rename(self._path)

    def succeeded(self, name: str) -> bool:
        """Tell whether an item has a result that is no error."""
        return "ranks" in self.known.get(name, {})


def _find_out(options: argparse.Namespace, results: Results) -> None:
    from multi_items import Plan
    from multi_layouts import prepare_text

    began = time.monotonic()
    gpus = options.gpus or (2 if options.device == "cpu" else _gpus())
    tiny = options.size == "tiny"
    plan = Plan(options.folder, gpus, options.device, tiny, ("tiny",) if tiny else tuple(options.models))
    prepare_text(options.folder)
    items = [item for item in plan.items() if _wanted(item.name, options, results)]
    print(f"{len(items)} items; text is there after {time.monotonic() - began:.0f} s", flush=True)
    from multi_schedule import Schedule

    keys = {"together": options.together, "patience": options.patience, "fresh": options.fresh}
    Schedule(items, results, options.folder / "items", **keys).run(began + options.until_s)


def _wanted(name: str, options: argparse.Namespace, results: Results) -> bool:
    def matches(patterns: list[str]) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    if options.only is not None and not matches(options.only) and name != "machine":
        return False
    return not results.succeeded(name) or matches(options.again)


def _gpus() -> int:
    """Return how many GPUs there are, without touching one."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return sum(line.startswith("GPU ") for line in listed.splitlines())


if __name__ == "__main__":
    sys.exit(main())
