"""What each cluster's documentation asks of a script, as the sources of the profiles say it.

Sources: docs.abci.ai (v3 and 2.0), qsub(1B) of OpenPBS, submit(1) of Grid Engine, sbatch(1), public job scripts of
Wisteria, TSUBAME 4.0 and Miyabi-G as named in ``cluster_profiles``.
"""

from __future__ import annotations

from typing import Any

import pytest

from hpcjob.errors import InputError
from hpcjob.render import render
from tests.hpcjob.render.plans import plan, profile


def directives(script: str) -> list[str]:
    """Return the block of comment lines at the top of a script, which is where schedulers look."""
    lines = script.split("\n")
    return lines[1 : lines.index("")]


def test_abci3_asks_for_nodes_group_and_resource_type_and_writes_its_log_live() -> None:
    """-P, -q and select are mandatory; without -k oed PBS shows a log after the end only; a rerun is not wanted."""
    lines = directives(render(plan("abci3", walltime="2:00:00")))
    assert "#PBS -P gex12345" in lines
    assert "#PBS -q rt_HF" in lines
    assert any(line.startswith("#PBS -l select=2") for line in lines)
    assert "#PBS -l walltime=02:00:00" in lines
    assert {"#PBS -j oe", "#PBS -k oed", "#PBS -m n", "#PBS -r n"} <= {*lines}
    assert not [line for line in lines if line.startswith("#PBS -V")], "the submitter's environment is not taken along"


def test_abci3_switches_ssh_on_for_pdsh_alone() -> None:
    """Nodes refuse ssh unless the job asks for it; the other launchers do not need it."""
    assert "#PBS -v USE_SSH=1" in directives(render(plan("abci3", launcher="pdsh")))
    assert "USE_SSH" not in render(plan("abci3", launcher="mpirun"))


def test_pbs_gets_one_list_of_variables() -> None:
    """Of several -v PBS takes the last alone, so they are joined."""
    lines = directives(render(plan("abci3", launcher="pdsh", extra=["-v RTYPE=rt_HF"])))
    assert [line for line in lines if line.startswith("#PBS -v")] == ["#PBS -v RTYPE=rt_HF,USE_SSH=1"]


def test_abci2_takes_the_group_on_the_command_line_only() -> None:
    """Grid Engine there refuses -g inside the script: the group stands in the comment that says how to submit."""
    script = render(plan("abci2"))
    lines = directives(script)
    assert not [line for line in lines if line.startswith("#$ -g")]
    assert "qsub -g gex12345" in script
    assert "#$ -l rt_AF=2" in lines
    assert "#$ -l h_rt=01:00:00" in lines
    assert {"#$ -cwd", "#$ -j y"} <= {*lines}


def test_abci2_loads_the_modules_of_2023_in_order() -> None:
    """The published runs of ABCI 2.0 name this set."""
    script = render(plan("abci2"))
    names = ["cuda/11.8/11.8.0", "cudnn/8.6/8.6.0", "nccl/2.16/2.16.2-1", "hpcx/2.12"]
    loads = [line.split()[1] for line in script.split("\n") if line.startswith("load_module ")]
    assert loads == names
    assert "/etc/profile.d/modules.sh" in script


def test_abci2_has_the_v_nodes_as_another_resource_type() -> None:
    """rt_F counts whole V nodes of four GPUs."""
    script = render(plan("abci2", queue="rt_F", launcher="mpirun"))
    assert "#$ -l rt_F=2" in directives(script)
    assert "-np 8" in script


def test_tsubame_counts_whole_nodes_and_gives_h_rt() -> None:
    """The resource type and h_rt are both mandatory; blanks around = are an unknown option."""
    lines = directives(render(plan("tsubame", walltime="24:00:00")))
    assert "#$ -l node_f=2" in lines
    assert "#$ -l h_rt=24:00:00" in lines
    assert not [line for line in lines if line.startswith("#$ -g")]


def test_wisteria_gives_group_nodes_and_elapse() -> None:
    """The group is mandatory and stands in the script; the default name of the output differs by version."""
    lines = directives(render(plan("wisteria")))
    assert "#PJM -g gex12345" in lines
    assert "#PJM -L rscgrp=regular-a" in lines
    assert "#PJM -L node=2" in lines
    assert "#PJM -L elapse=01:00:00" in lines
    assert "#PJM -j" in lines
    assert any(line.startswith("#PJM -o ") for line in lines)
    assert "PJM_O_NODEINF" in render(plan("wisteria"))


def test_miyabi_gives_the_group_as_group_list() -> None:
    """-P and :ngpus= are refused there."""
    lines = directives(render(plan("miyabi")))
    assert "#PBS -W group_list=gex12345" in lines
    assert not [line for line in lines if line.startswith("#PBS -P") or "ngpus" in line]
    assert "#PBS -q regular-g" in lines
    assert "#PBS -l select=2:mpiprocs=1" in lines


def test_lab_asks_slurm_for_nodes_tasks_and_gpus_and_for_a_signal() -> None:
    """B: sends the signal to the batch shell, which is what runs the trap."""
    lines = directives(render(plan("lab", queue="gpu", walltime="1-00:00:00", cpus_per_gpu=8)))
    assert "#SBATCH --nodes=2" in lines
    assert "#SBATCH --ntasks-per-node=8" in lines
    assert "#SBATCH --gpus-per-node=8" in lines
    assert "#SBATCH --cpus-per-task=8" in lines
    assert "#SBATCH --partition=gpu" in lines
    assert "#SBATCH --account=gex12345" in lines
    assert "#SBATCH --time=24:00:00" in lines
    assert "#SBATCH --signal=B:USR2@300" in lines


def test_srun_takes_cpus_per_task_again() -> None:
    """Since Slurm 22.05 srun ignores what sbatch was given; a node's agent gets the CPUs of all its ranks."""
    assert "--cpus-per-task=8" in render(plan("lab", launcher="srun", cpus_per_gpu=8)).split("run_step '")[-1]
    assert "--cpus-per-task=64" in render(plan("lab", launcher="torchrun", cpus_per_gpu=8))
    by_mpirun = [plan(where, launcher="mpirun", cpus_per_gpu=8) for where in ("lab", "abci3")]
    told = ['env SRUN_CPUS_PER_TASK=64 "$mpirun" -np 16' in render(made) for made in by_mpirun]
    assert told == [True, False], "Open MPI starts its daemons by srun, one a node"
    pyxis = profile("lab", scheduler={"pyxis": True})
    image = render(plan(pyxis, cpus_per_gpu=8, launcher="srun", python={"container": {"image": "docker://x"}}))
    assert "exec env -u SRUN_CPUS_PER_TASK srun --nodes=1 --ntasks=1 " in image, "one process, for which all are"


def test_a_rank_asks_slurm_for_its_gpus_share_of_the_cores() -> None:
    """Slurm gives a task one CPU unless asked, and srun binds it to that: sbatch(1), --cpus-per-task."""
    cores = profile("lab", node={"cores": 64})
    script = render(plan(cores, launcher="srun"))
    assert "#SBATCH --cpus-per-task=8" in directives(script)
    assert script.count("--cpus-per-task=8") == 2
    assert "OMP_NUM_THREADS=8" in script
    assert "#SBATCH --cpus-per-task=16" in directives(render(plan(cores, procs_per_node=4)))
    assert "#SBATCH --cpus-per-task=8" in directives(render(plan(cores, gpus_per_node=2)))
    assert "#SBATCH --cpus-per-task=3" in directives(render(plan(cores, cpus_per_gpu=3)))
    for unasked in (plan("lab"), plan(cores, kind="cpu"), plan(cores, extra=["--cpus-per-gpu=6"])):
        assert "cpus-per-task" not in render(unasked)


def test_gres_where_the_profile_says_so() -> None:
    """Older Slurm knows GPUs as gres only; some sites give whole nodes."""
    old = profile("lab", scheduler={"gpu_request": "gres"})
    assert "#SBATCH --gres=gpu:8" in directives(render(plan(old)))
    whole = profile("lab", scheduler={"gpu_request": "none"})
    assert "gpu" not in "".join(line for line in directives(render(plan(whole))) if line.startswith("#SBATCH"))


def test_jobdir_gets_the_schedulers_own_output() -> None:
    """Where the folder is known, the scheduler writes beside the other logs; its id is in the name or linked to it."""
    assert "#SBATCH --output=/w/j/%j_sched.out" in directives(render(plan("lab"), jobdir="/w/j"))
    assert '#SBATCH --output="/w/100%% j"/%j_sched.out' in directives(render(plan("lab"), jobdir="/w/100% j"))
    assert "#PJM -o /w/j/%j_sched.out" in directives(render(plan("wisteria"), jobdir="/w/j"))
    for name, line in (("abci3", "#PBS -o /w/j/sched.out"), ("abci2", "#$ -o /w/j/sched.out")):
        script = render(plan(name), jobdir="/w/j")
        assert line in directives(script)
        assert 'ln -sf sched.out "$jobdir/${job_id}_sched.out"' in script


@pytest.mark.parametrize(
    ("name", "launcher", "reason", "instead"),
    [
        ("abci3", "srun", "srun is part of Slurm", "mpirun or torchrun or pdsh"),
        ("abci2", "srun", "srun is part of Slurm", "pdsh"),
        ("wisteria", "pdsh", "no ssh", "mpirun or torchrun"),
        ("wisteria", "srun", "srun is part of Slurm", "mpirun or torchrun"),
        ("local", "pdsh", "one", "mpirun or torchrun"),
        ("local", "srun", "srun is part of Slurm", "mpirun or torchrun"),
    ],
)
def test_refusals_give_reason_and_alternatives(name: str, launcher: str, reason: str, instead: str) -> None:
    """A launcher that cannot work there is refused before anything is rendered."""
    with pytest.raises(InputError) as caught:
        plan(name, launcher=launcher)
    assert reason in caught.value.message
    assert instead in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "job", "key"),
    [
        ("abci2", {"exclude": ["node1"]}, "exclude"),
        ("wisteria", {"reservation": "R1"}, "reservation"),
        ("tsubame", {"memory": "100G"}, "memory"),
    ],
)
def test_what_a_scheduler_cannot_ask_for_is_refused(name: str, job: dict[str, Any], key: str) -> None:
    """A request that would be dropped silently is refused with its key."""
    with pytest.raises(InputError, match=f"^{key}: "):
        render(plan(name, **job))


def test_no_launcher_falls_back_or_forwards_by_text() -> None:
    """One line per step: mpirun starts all ranks by our hostfile, without -x; srun kills on a bad exit; pdsh has -S."""
    mpirun = render(plan("abci3", launcher="mpirun"))
    assert "-np 16" in mpirun
    assert '--hostfile "$jobdir/hostfile"' in mpirun
    assert " -x " not in mpirun
    assert "--kill-on-bad-exit=1" in render(plan("lab", launcher="srun"))
    assert "--ntasks=16" in render(plan("lab", launcher="srun"))
    pdsh = render(plan("abci2", launcher="pdsh"))
    assert "pdsh -S -N -R ssh -f 2 " in pdsh
    assert '"-p 2222 ' in pdsh, "the port of sshd on ABCI 2.0's nodes"


def test_slurm_mpirun_uses_the_allocation() -> None:
    """Inside Slurm Open MPI finds the nodes itself."""
    assert "--hostfile" not in render(plan("lab", launcher="mpirun"))


def test_defaults_of_nccl_can_be_changed() -> None:
    """NCCL's log goes to a file for each process; a job's own settings are left alone."""
    script = render(plan("abci3"))
    assert "export NCCL_DEBUG=INFO" in script
    assert "export NCCL_DEBUG_SUBSYS=INIT,NET,ENV" in script
    assert "nccl.%h.%p.log" in script
    quiet = render(plan("abci3", env={"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/dev/null"}))
    assert quiet.count("export NCCL_DEBUG=") == 1
    assert quiet.count("NCCL_DEBUG_FILE=") == 1
