"""Compare the CUDA and NCCL that are declared with those of the modules, of the job's torch, and of the driver.

usage: check_versions.py CUDA NCCL module|torch      ("-": nothing is declared)
Prints a table; ends with one line and code 87 if something does not fit.
"""

import os
import re
import subprocess
import sys


def said(*command):
    """Return what a command prints, or nothing where there is no such command."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def found(pattern, text):
    match = re.search(pattern, text)
    return match[1] if match else None


def module_nccl():
    """Return the version in the nccl.h that a module shows, by its variables or the compiler's search path."""
    homes = [os.environ.get(name) for name in ("NCCL_HOME", "NCCL_ROOT", "NCCL_DIR")]
    folders = [os.path.join(home, "include") for home in homes if home]
    for variable in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"):
        folders += [folder for folder in os.environ.get(variable, "").split(":") if folder]
    for folder in folders:
        try:
            with open(os.path.join(folder, "nccl.h"), errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        parts = [found(rf"#define\s+NCCL_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
        if all(parts):
            return ".".join(parts)
    return None


def torch_versions():
    """Return the versions of CUDA and NCCL that the job's torch loads; None for what it has not."""
    try:
        import torch
    except ImportError:
        return None, None
    nccl = torch.cuda.nccl.version() if torch.version.cuda and torch.distributed.is_nccl_available() else None
    return torch.version.cuda, ".".join(map(str, nccl)) if nccl else None


def agrees(declared, version):
    """Whether ``version`` is the declared one as far as that goes: 12.4 takes 12.4.1; a package's -1 does not count."""
    wanted = declared.split("-")[0].split(".")
    return version.split("-")[0].split(".")[: len(wanted)] == wanted


def mismatches(cuda, nccl, nccl_from, rows):
    """Yield one sentence for each thing that does not fit."""
    _, _, module_cuda, torch_cuda, driver_cuda = rows[0]
    _, _, nccl_of_module, nccl_of_torch, _ = rows[1]
    if cuda != "-":
        for where, version in (("nvcc of the modules", module_cuda), ("torch", torch_cuda)):
            if version and not agrees(cuda, version):
                yield f"CUDA {cuda} is declared, {where} has {version}"
    if torch_cuda and driver_cuda and int(driver_cuda.split(".")[0]) < int(torch_cuda.split(".")[0]):
        yield f"torch needs CUDA {torch_cuda}, the driver supports {driver_cuda}"
    if nccl != "-":
        where, version = ("the module", nccl_of_module) if nccl_from == "module" else ("torch", nccl_of_torch)
        if version is None:
            yield f"NCCL {nccl} is declared, {where} shows none"
        elif not agrees(nccl, version):
            yield f"NCCL {nccl} is declared, {where} has {version}"


def main(cuda, nccl, nccl_from):
    torch_cuda, torch_nccl = torch_versions()
    driver_cuda = found(r"CUDA Version:\s*([\d.]+)", said("nvidia-smi"))
    driver = said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0].strip()
    rows = [
        ("CUDA", cuda, found(r"release ([\d.]+)", said("nvcc", "--version")), torch_cuda, driver_cuda),
        ("NCCL", nccl, module_nccl(), torch_nccl, None),
    ]
    print(f"hpcjob: versions  {'declared':<12} {'module':<12} {'loaded by the job':<18} driver {driver or '-'}")
    for row in rows:
        name, *cells = (cell or "-" for cell in row)
        print(f"        {name:<9} {cells[0]:<12} {cells[1]:<12} {cells[2]:<18} {cells[3]}")
    wrong = list(mismatches(cuda, nccl, nccl_from, rows))
    if wrong:
        print(f"hpcjob: check: versions: {'; '.join(wrong)}")
    return 87 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
