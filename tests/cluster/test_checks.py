"""What a job checks before the launch, on real nodes: nothing wrong is waited for until the walltime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.testbed import Testbed
from tests.cluster.testbed.modules import init_script
from tests.cluster.user import PROFILE, User

pytestmark = pytest.mark.cluster

CHECK_FAILED = 87
RECORDED = Path(__file__).with_name("recorded")

# The versions of the machine on which the outputs were recorded.
CUDA, NCCL = "13.0", "2.28.9"

TORCH = """\
class version:
    cuda = "{cuda}"
class cuda:
    class nccl:
        version = staticmethod(lambda: ({nccl}))
class distributed:
    is_nccl_available = staticmethod(lambda: True)
"""


def add_gpu_software(
    bed: Testbed,
    *,
    nvcc: str = CUDA,
    nccl: str = NCCL,
    driver: str = CUDA,
    torch_cuda: str = CUDA,
    torch_nccl: str = NCCL,
) -> list[str]:
    """Make modules of a GPU site, from recorded outputs with these versions in them; their names."""
    recorded = {path.stem: path.read_text() for path in RECORDED.glob("*.txt")}
    nvidia_smi = {
        "": recorded["nvidia-smi"].replace("CUDA Version: 13.0", f"CUDA Version: {driver}"),
        "-L": recorded["nvidia-smi-L"],
        "--query-gpu=driver_version --format=csv,noheader": recorded["nvidia-smi-driver_version"],
    }
    compiler = {"--version": recorded["nvcc-version"].replace("release 13.0", f"release {nvcc}")}
    major, minor, patch = nccl.split(".")
    header = f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH {patch}\n"
    torch = TORCH.format(cuda=torch_cuda, nccl=torch_nccl.replace(".", ","))
    bed.modules.add("gpu-driver", programs={"nvidia-smi": nvidia_smi})
    bed.modules.add("cuda/site", programs={"nvcc": compiler})
    bed.modules.add("nccl/site", files={"include/nccl.h": header})
    # A folder for each: bytecode of another torch of the same second and size would be taken for this one's.
    folder = f"python-{torch_cuda}-{torch_nccl}"
    python_path = f"prepend-path PYTHONPATH {bed.modules.home('torch/site')}/{folder}"
    bed.modules.add("torch/site", files={f"{folder}/torch/__init__.py": torch}, lines=[python_path])
    return ["gpu-driver", "cuda/site", "nccl/site", "torch/site"]


def run_on_gpus(user: User, modules: list[str], versions: dict[str, str], gpus: int = 1) -> tuple[int, str]:
    """Run a job of two nodes with GPUs under these modules; its exit code and its log."""
    profile = {
        "node": {"gpus": 8, "gpu": "H200"},
        "modules": {"init": init_script(), "use": [str(user.bed.modules.files)], "load": modules},
        "versions": versions,
    }
    user.write_profile(profile, name="gpus")
    job = user.write_job("check", command=["sh", "-c", "echo rank $RANK runs"])
    id_ = user.submit(job, "--nodes", "2", "--gpus-per-node", str(gpus), "--launcher", "srun", profile="gpus")
    return user.wait(id_), user.log(id_)


def checks_in(log: str) -> list[str]:
    """The lines of a log in which a check says why it ended the job."""
    return re.findall(r"^hpcjob: check: (.*)$", log, flags=re.MULTILINE)


def test_versions_that_fit_let_the_job_run(user: User, bed: Testbed) -> None:
    """With the declared CUDA and NCCL everywhere the ranks start, and the table is in the log."""
    code, log = run_on_gpus(user, add_gpu_software(bed), {"cuda": CUDA, "nccl": NCCL, "nccl_from": "torch"})
    assert code == 0, log
    assert "rank 0 runs" in log
    assert re.search(rf"CUDA +{CUDA} +{CUDA} +{CUDA} +{CUDA}\n +NCCL +{NCCL} +{NCCL} +{NCCL} +-\n", log)


@pytest.mark.parametrize(
    ("planted", "declared", "reason"),
    [
        ({}, {"cuda": "12.4"}, "CUDA 12.4 is declared, nvcc of the modules has 13.0"),
        ({"nvcc": "12.9"}, {"cuda": CUDA}, "CUDA 13.0 is declared, nvcc of the modules has 12.9"),
        ({"torch_cuda": "12.8"}, {"cuda": CUDA}, "CUDA 13.0 is declared, torch has 12.8"),
        ({"driver": "12.2"}, {"cuda": CUDA}, "torch needs CUDA 13.0, the driver supports 12.2"),
        ({"torch_nccl": "2.27.5"}, {"nccl": NCCL, "nccl_from": "torch"}, "NCCL 2.28.9 is declared, torch has 2.27.5"),
        ({"nccl": "2.16.2"}, {"nccl": NCCL, "nccl_from": "module"}, "NCCL 2.28.9 is declared, the module has 2.16.2"),
    ],
    ids=["declared", "module-cuda", "torch-cuda", "driver", "torch-nccl", "module-nccl"],
)
def test_planted_mismatch_of_versions_ends_the_job(
    user: User, bed: Testbed, planted: dict[str, Any], declared: dict[str, str], reason: str
) -> None:
    """A wrong version in any column of the table ends the job before the launch, with the reason in one line."""
    code, log = run_on_gpus(user, add_gpu_software(bed, **planted), declared)
    assert code == CHECK_FAILED
    (line,) = checks_in(log)
    assert reason in line
    assert "runs" not in log


def test_nccl_that_the_job_does_not_use_may_differ(user: User, bed: Testbed) -> None:
    """With ``nccl_from: torch`` the module's NCCL may be another, as pip's torch brings its own."""
    code, log = run_on_gpus(user, add_gpu_software(bed, nccl="2.16.2"), {"nccl": NCCL, "nccl_from": "torch"})
    assert code == 0, log


def test_fewer_gpus_than_asked_end_the_job(user: User, bed: Testbed) -> None:
    """A node that shows one GPU where two were asked ends the job."""
    code, log = run_on_gpus(user, add_gpu_software(bed), {}, gpus=2)
    assert code == CHECK_FAILED
    assert any("GPUs: 2 requested" in line for line in checks_in(log))
    assert "runs" not in log


@pytest.mark.parametrize(
    ("module", "reason"),
    [("cuda/99", "Unable to locate a modulefile for 'cuda/99'"), ("broken", "licence server not reachable")],
)
def test_module_that_does_not_load_ends_the_job(user: User, bed: Testbed, module: str, reason: str) -> None:
    """A missing and a broken module end the job with one line that names it and says what the module system said."""
    bed.modules.add_broken("broken", "licence server not reachable")
    bed.modules.add("gcc/13.2.0")
    modules = ["gcc/13.2.0", module]
    job = user.write_job("modules", command=["true"], modules=modules, module_use=[str(bed.modules.files)])
    id_ = user.submit(job)
    assert user.wait(id_) == CHECK_FAILED
    (line,) = checks_in(user.log(id_))
    assert line.startswith(f"module {module} did not load: ")
    assert reason in line
    assert user.status(id_)["state"] == "FAILED"


def test_another_number_of_nodes_than_asked_ends_the_job(user: User) -> None:
    """A script for two nodes that is given one does not run on one."""
    job = user.write_job("nodes", command=["echo", "it runs"])
    user.hpcjob("render", job, "--nodes", "2", "--profile", PROFILE, "-o", "job.sh")
    id_ = user.run("sbatch", "--parsable", "--nodes=1", "job.sh").stdout.strip()
    user.hpcjob("attach", id_, "--profile", PROFILE)
    assert user.wait(id_) == CHECK_FAILED
    log = user.log(id_)
    assert checks_in(log) == ["nodes: 2 requested, but 1 given (node1)"]
    assert "it runs" not in log
