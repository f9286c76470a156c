"""The check of CUDA and NCCL that runs in the job: each row of its table, with stand-ins for what it asks.

The texts of nvcc and nvidia-smi are those of CUDA 11.8 and driver 550.54.15; nccl.h is NCCL's own form.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcjob.resources import shipped

CHECK = shipped("templates") / "parts" / "check_versions.py"
NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2022 NVIDIA Corporation
Built on Wed_Sep_21_10:33:58_PDT_2022
Cuda compilation tools, release {cuda}, V{cuda}.89
Build cuda_11.8.r11.8/compiler.31833905_0
"""
SMI = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: {driver}     |"
TORCH = """
class version: cuda = {cuda!r}
class distributed:
    is_nccl_available = staticmethod(lambda: True)
class cuda:
    class nccl:
        version = staticmethod(lambda: {nccl!r})
"""


class Site:
    """A node with modules, torch and a driver of given versions; None: there is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module_cuda: str | None = "11.8"
        self.module_nccl: str | None = "2.16.2"
        self.torch_cuda: str | None = "11.8"
        self.torch_nccl: tuple[int, ...] | None = (2, 14, 3)
        self.driver: str | None = "12.4"

    def check(self, cuda: str, nccl: str, nccl_from: str) -> tuple[int, str]:
        """Run the check; return its code and what it prints."""
        binary, packages, include = (self.folder / name for name in ("bin", "packages", "nccl/include"))
        for folder in (binary, packages, include):
            folder.mkdir(parents=True, exist_ok=True)
        if self.module_cuda:
            self._program(binary / "nvcc", NVCC.format(cuda=self.module_cuda))
        if self.driver:
            query = 'case "$1" in --query*) echo 550.54.15; exit ;; esac\n'
            self._program(binary / "nvidia-smi", SMI.format(driver=self.driver), query)
        if self.module_nccl:
            names = ("MAJOR", "MINOR", "PATCH")
            lines = [f"#define NCCL_{n} {v}" for n, v in zip(names, self.module_nccl.split("."), strict=True)]
            (include / "nccl.h").write_text("\n".join(["#ifndef NCCL_H_", *lines, ""]))
        (packages / "torch.py").write_text(TORCH.format(cuda=self.torch_cuda, nccl=self.torch_nccl))
        environment = {"PATH": str(binary), "PYTHONPATH": str(packages), "NCCL_HOME": str(include.parent)}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # torch.py changes within a test
        done = subprocess.run(
            [sys.executable, CHECK, cuda, nccl, nccl_from], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    @staticmethod
    def _program(path: Path, text: str, first: str = "") -> None:
        # No `cat`: the PATH of the check has nothing but these.
        path.write_text(f"#!/bin/bash\n{first}printf '%s\\n' '{text}'\n")
        path.chmod(0o755)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """The set of 2023: CUDA 11.8 and NCCL 2.16.2 as modules, torch with an NCCL of its own."""
    return Site(tmp_path)


def test_a_set_that_fits(site: Site) -> None:
    """One table, and code 0; a package's suffix does not count."""
    code, said = site.check("11.8", "2.16.2-1", "module")
    assert code == 0
    table = [line.split() for line in said.strip().split("\n")]
    assert table[1] == ["CUDA", "11.8", "11.8", "11.8", "12.4"]
    assert table[2] == ["NCCL", "2.16.2-1", "2.16.2", "2.14.3", "-"]
    assert "driver 550.54.15" in said


@pytest.mark.parametrize(
    ("change", "declared", "line"),
    [
        ({"module_cuda": "12.1"}, ("11.8", "-", "torch"), "CUDA 11.8 is declared, nvcc of the modules has 12.1"),
        ({"torch_cuda": "12.1"}, ("11.8", "-", "torch"), "CUDA 11.8 is declared, torch has 12.1"),
        ({"driver": "10.2"}, ("11.8", "-", "torch"), "torch needs CUDA 11.8, the driver supports 10.2"),
        ({"module_nccl": "2.18.5"}, ("11.8", "2.16.2", "module"), "NCCL 2.16.2 is declared, the module has 2.18.5"),
        ({"module_nccl": None}, ("11.8", "2.16.2", "module"), "NCCL 2.16.2 is declared, the module shows none"),
        ({}, ("11.8", "2.16.2", "torch"), "NCCL 2.16.2 is declared, torch has 2.14.3"),
    ],
)
def test_a_mismatch_of_each_row_stops_the_job(
    site: Site, change: dict[str, str | None], declared: tuple[str, str, str], line: str
) -> None:
    """Code 87, and one line that says what is declared and what is there."""
    for name, value in change.items():
        setattr(site, name, value)
    code, said = site.check(*declared)
    assert code == 87
    assert said.strip().split("\n")[-1] == f"hpcjob: check: versions: {line}"


def test_versions_agree_as_far_as_they_are_declared(site: Site) -> None:
    """12 takes any 12.x, 12.4 takes 12.4.1, 2.2 does not take 2.21."""
    site.module_cuda = site.torch_cuda = "12.4"
    assert site.check("12", "-", "torch")[0] == 0
    site.torch_nccl = (2, 21, 5)
    assert site.check("12.4", "2.21", "torch")[0] == 0
    assert site.check("12.4", "2.2", "torch")[0] == 87


def test_what_is_not_there_is_not_checked(site: Site) -> None:
    """A CPU build of torch, no modules, no driver: the table has dashes."""
    site.module_cuda = site.module_nccl = site.torch_cuda = site.torch_nccl = site.driver = None
    code, said = site.check("-", "-", "torch")
    assert code == 0
    assert [line.split()[2:] for line in said.strip().split("\n")[1:]] == [["-"] * 3, ["-"] * 3]


def test_the_torch_of_this_environment() -> None:
    """The real torch here is read without an error, whatever it was built for."""
    done = subprocess.run(
        [sys.executable, CHECK, "-", "-", "torch"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "NCCL" in done.stdout
