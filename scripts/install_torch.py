"""Install the pinned torch into the running interpreter's environment, in the build that this machine can use.

``pip install torch`` on Linux brings the CUDA build with gigabytes of libraries. A machine without an NVIDIA driver
gets the CPU build: from the places this pip is configured with, else from PyTorch's own index of CPU wheels.
Run by ``make_venv.py``; by hand: ``.venv/bin/python scripts/install_torch.py``.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


def pinned_version() -> str:
    """Version of torch in constraints.txt, such as ``2.13.0``."""
    match = re.search(r"^torch==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        sys.exit(f"install_torch: {CONSTRAINTS} pins no torch (a line torch==VERSION)")
    return match.group(1)


def installed_version() -> str | None:
    """Installed version with its build, such as ``2.13.0+cpu``."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def has_nvidia_driver() -> bool:
    """Whether the kernel module of NVIDIA's driver is loaded."""
    return Path("/proc/driver/nvidia/version").exists()


def pip_install(requirement: str, *options: str) -> bool:
    """Whether pip could install ``requirement``."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "-c", str(CONSTRAINTS)]
    return subprocess.run([*pip, *options, requirement], check=False).returncode == 0


def main() -> None:
    """Install torch, or end with one line that says what could not be done."""
    version = pinned_version()
    found = installed_version()
    if found and found.split("+")[0] == version:
        print(f"torch {found} is installed")
        return
    if sys.platform != "linux" or has_nvidia_driver():
        print(f"Installing torch {version} for this machine", flush=True)
        done = pip_install(f"torch=={version}")
    else:
        print(f"Installing torch {version}, CPU build (no NVIDIA driver here)", flush=True)
        done = pip_install(f"torch=={version}+cpu")
        if not done:
            print(f"Not found where this pip looks: trying {CPU_WHEELS}", flush=True)
            done = pip_install(f"torch=={version}+cpu", "--extra-index-url", CPU_WHEELS)
    if not done:
        sys.exit(f"install_torch: pip could not install torch {version} (its reason is above)")


if __name__ == "__main__":
    main()
