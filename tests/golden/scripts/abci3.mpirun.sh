#!/bin/bash
#PBS -N gpt-2.7B
#PBS -P gex12345
#PBS -q rt_HF
#PBS -l select=2:mpiprocs=8
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -k oed
#PBS -m n
#PBS -r n
# ABCI 3.0, AIST: made by hpcjob 0.1.0
# template pbs.sh.j2 over base.sh.j2 and parts, sha256 5ff2178930e1
# submit: qsub FILE

set -euo pipefail
# Earlier ones take an empty array for a variable that is not set.
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || { echo "hpcjob: check: bash: 4.4 is needed, this is $BASH_VERSION" && exit 87; }

# --- Job folder ------------------------------------------------------------------------------------------------------
job_id=${PBS_JOBID:?is set by PBS: submit this script with qsub}
cd "$PBS_O_WORKDIR" # PBS starts a job in the home folder
submit_dir=$PWD
jobdir=$submit_dir/outputs/gpt-2.7B/$(date -u +%Y%m%dT%H%M%SZ)-$job_id
mkdir -p "${jobdir%/*}" && mkdir -m 700 "$jobdir"
echo "hpcjob: job $job_id, folder $jobdir"
exec >>"$jobdir/${job_id}_job.out" 2>&1 # can be read while the job runs, on every scheduler
rm -f "$jobdir"/{abort,outcome.json,rank0.open,stop} "$jobdir/${job_id}_exit.json" # left by an earlier start of this job
echo "hpcjob: $(date +%Y-%m-%dT%H:%M:%S%:z) job $job_id on $(uname -n):" '2 x 8 GPUs, 2 x 8 ranks, walltime 01:00:00; train (mpirun)'

# --- End of the job: leave an exit record and no process ---------------------------------------------------------------
step=null signal=null signalled='' kind='' child='' helpers=()

finish() {
  local code=$? record=$jobdir/${job_id}_exit.json
  trap - EXIT
  trap '' TERM INT HUP USR1 USR2 ALRM PIPE XCPU XFSZ
  printf '{"code": %d, "signal": %s, "time": "%s", "host": "%s", "step": %s}\n' \
    "$code" "$signal" "$(date +%Y-%m-%dT%H:%M:%S%:z)" "$(uname -n)" "$step" >"$record.tmp" && mv "$record.tmp" "$record"
  kill -KILL "${helpers[@]}" ${child:+"$child"} 2>/dev/null || :
}
trap finish EXIT

fail() { # WORDS: a check before the launch failed
  echo "hpcjob: check: $*"
  exit 87
}

# The trainer looks for the file `stop` in each iteration, saves a checkpoint and ends.
ask_to_stop() { # walltime|request
  { echo "$1" >"$jobdir/stop.tmp" && mv "$jobdir/stop.tmp" "$jobdir/stop"; } || echo "hpcjob: no file can be made in $jobdir"
}

# Every signal that would end this script is trapped: bash would leave a record with code 0. One that comes during a step
# is heeded by `await`.
take() { # SIGNAL
  if [[ $child ]]; then signalled+="$1 "; else heed "$1"; fi
}

heed() { # SIGNAL
  case $1 in
    USR1 | USR2 | XCPU) [[ -e $jobdir/stop ]] || ask_to_stop walltime ;; # schedulers warn by these
    *) end_by "$1" ;;
  esac
}

end_by() { # SIGNAL: someone ends the job
  local asked=$signal
  signal="\"$1\"" signal_code=$((128 + $(kill -l "$1")))
  [[ $child && $asked == null ]] || exit "$signal_code" # nothing to wait for, or asked again
  ask_to_stop request
  end_step "$child" &
  help_by "$!"
}

help_by() { # PID: a process beside the step, which ends with it
  disown "$1" # bash is not to tell of its end
  helpers+=("$1")
}

end_step() { # PID: leave a trainer time to save, then end the step
  local tick
  exec {tick}<> <(:) # a pipe on which nothing ever comes: reading from it waits, without a process
  [[ $kind != train ]] || read -rt 20 -u "$tick" || :
  kill -TERM "$1" || :
  read -rt 8 -u "$tick" || kill -KILL "$1"
}

trap 'take TERM' TERM
trap 'take INT' INT
trap 'take HUP' HUP
trap 'take USR1' USR1
trap 'take USR2' USR2
trap 'take ALRM' ALRM
trap 'take PIPE' PIPE
trap 'take XCPU' XCPU
trap 'take XFSZ' XFSZ

# --- Modules and files -----------------------------------------------------------------------------------------------
# What changes in the environment from here on is handed to the ranks on all nodes.
declare -A before
for variable in $(compgen -e); do before[$variable]=${!variable-}; done

set +eu # a site's files are not written for strict mode
module_init=/etc/profile.d/modules.sh
[[ -r $module_init ]] || fail "modules: cannot read $module_init"
builtin source "$module_init"
[[ $(type -t module) ]] || fail 'modules: there is no command module (see modules.init of the profile)'
module purge
set -eu
[[ ${MODULEPATH-} ]] || fail 'modules: MODULEPATH is empty, so no module can be found'

load_module() { # NAME; some module systems return 0 when they fail
  local known=${LOADEDMODULES-} code=0 file words
  file=$(mktemp)
  set +eu
  module load "$1" >"$file" 2>&1
  code=$?
  set -eu
  words=$(<"$file")
  rm "$file"
  if ((code)) || [[ ${LOADEDMODULES-} == "$known" && ":$known:" != *":$1"[:/]* ]]; then
    fail "module $1 did not load: $(tr -s '\n\t ' ' ' <<<"$words")"
  fi
  [[ ! $words ]] || echo "$words"
}

load_module cuda/12.6/12.6.1
load_module cudnn/9.5/9.5.1
load_module nccl/2.25/2.25.1-1
load_module hpcx/2.20
echo "hpcjob: modules ${LOADEDMODULES-}"

# --- Python ----------------------------------------------------------------------------------------------------------
container=''
python=$(command -v /opt/neoxlite/bin/python) || fail 'python.executable: there is no /opt/neoxlite/bin/python'
missing=$("$python" -c 'import sys, importlib.util as u; print(*(n for n in sys.argv[1:] if not u.find_spec(n)))' \
  neoxlite deepspeed torch) || fail "python: $python does not start"
[[ ! $missing ]] || fail "python: $python has no package $missing (pip install 'hpcjob[train]')"
echo "hpcjob: python $python"

# --- Nodes and GPUs --------------------------------------------------------------------------------------------------
mapfile -t names <"$PBS_NODEFILE"
hosts=''
declare -A seen
for host in "${names[@]}"; do # a host may be named once for each slot
  [[ $host && ! ${seen[$host]-} ]] || continue
  seen[$host]=1
  hosts+=${hosts:+,}$host
  echo "$host slots=8"
done >"$jobdir/hostfile"
echo "hpcjob: nodes $hosts"
((${#seen[@]} == 2)) || fail "nodes: 2 requested, but ${#seen[@]} given ($hosts)"
# Its full path tells the other nodes where Open MPI is.
mpirun=$(command -v mpirun) || fail 'launcher: there is no mpirun on PATH'
[[ $mpirun != /bin/* ]] || mpirun=/usr$mpirun # a link; Open MPI would take / for its prefix, and refuse it
if [[ $(id -u) == 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

check_gpus() { # on every node, before its ranks start
  local count mask
  if [[ ! $(type -P nvidia-smi) ]]; then
    echo "$(uname -n): GPUs: 8 requested, but it has no nvidia-smi"
    return 1
  fi
  count=$(nvidia-smi -L | grep -c '^GPU ') || :
  if [[ ${CUDA_VISIBLE_DEVICES-} ]] && IFS=, read -ra mask <<<"$CUDA_VISIBLE_DEVICES" && ((${#mask[@]} <= count)); then
    count=${#mask[@]} # those of the node that are this job's
  fi
  if ((count != 8)); then
    echo "$(uname -n): GPUs: 8 requested, but it has $count"
    return 1
  fi
}
problem=$(check_gpus) || fail "$problem"
nvidia-smi nvlink --status || :

cat >"$jobdir/check_versions.py" <<'END_OF_CHECK'
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
END_OF_CHECK
"$python" "$jobdir/check_versions.py" 12.6 2.25.1 module

set_limits() { :; }

# --- Environment of the ranks ----------------------------------------------------------------------------------------
export NCCL_IB_HCA=mlx5_ibn1,mlx5_ibn2,mlx5_ibn3,mlx5_ibn4,mlx5_ibn5,mlx5_ibn6,mlx5_ibn7,mlx5_ibn8
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,NET,ENV
export NCCL_DEBUG_FILE=${jobdir//%/%%}/nccl.%h.%p.log
# A hang leaves what each rank was doing, for `hpcjob explain` (PyTorch 2.8 and later).
mkdir -p "$jobdir/comm_traces"
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=$jobdir/comm_traces/nccl_trace_rank_
export HPCJOB_JOB_ID=$job_id HPCJOB_JOBDIR=$jobdir HPCJOB_SUBMIT_DIR=$submit_dir
export NEOXLITE_STOP_FILE=$jobdir/stop NEOXLITE_OUTCOME_FILE=$jobdir/outcome.json
export NEOXLITE_METRICS_FILE=$jobdir/metrics.jsonl NEOXLITE_INTERNET=1
export NEOXLITE_PEAK_TFLOPS=989

export MASTER_ADDR=${hosts%%,*}
getent hosts "$MASTER_ADDR" >/dev/null || fail "nodes: $MASTER_ADDR has no address here (see network_interface of the profile)"
digits=000000000${job_id//[!0-9]/} # a port of this job's own, that nothing listens on
export MASTER_PORT=$((20000 + 10#${digits: -9} % 20000))
while (exec 3<>"/dev/tcp/127.0.0.1/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done

environment() { # print the commands that give a shell elsewhere what was set here
  local name
  for name in $(compgen -e); do
    case $name in
      _ | BASH_ENV | HOSTNAME | OLDPWD | PWD | SHLVL | TERM | TMPDIR | *[!A-Za-z0-9_]*) ;;
      RANK | WORLD_SIZE | LOCAL_RANK | OMPI_* | PMI_* | PMIX_* | PBS_* | PJM_* | SGE_* | SLURM_* | SLURMD_* | SRUN_* | SSH_*) ;;
      PATH | LD_LIBRARY_PATH) declare -px "$name" ;;
      *) [[ -v before[$name] && ${before[$name]} == "${!name}" ]] || declare -px "$name" ;;
    esac
  done
}
write_environment() { # for the ranks
  (umask 077 && { environment && declare -f check_gpus set_limits && declare -px CUDA_DEVICE_MAX_CONNECTIONS NCCL_IB_HCA; } >"$jobdir/env.sh")
}
write_environment

(umask 077 && {
  date +%Y-%m-%dT%H:%M:%S%:z
  uname -a
  echo "python $(readlink -f "$python")"
  echo "modules ${LOADEDMODULES-}"
  nvidia-smi --query-gpu=index,name,uuid,driver_version,memory.total --format=csv || :
  ulimit -a
  for name in $(compgen -e); do # what may be a secret is left out
    case ${name^^} in
      *TOKEN* | *SECRET* | *PASS* | *KEY* | *CREDENTIAL* | *AUTH* | *COOKIE* | PAT | *_PAT) echo "$name=(left out)" ;;
      *) declare -p "$name" ;;
    esac
  done | LC_ALL=C sed 's|://[^/@]*:[^/@]*@|://(left out)@|g' # a proxy's password
} >"$jobdir/run_record.txt") || :

# --- What runs on the nodes --------------------------------------------------------------------------------------------
cat >"$jobdir/common.sh" <<'END_OF_COMMON'
# Sourced by rank.sh and node.sh, each of which oversees one process of the job, and by the job script.

# abort CODE WORDS: stop the job on all nodes; the first reason given is kept.
abort() {
  echo "hpcjob: $2"
  (set -o noclobber && echo "$1 $2" >"$HPCJOB_JOBDIR/abort") 2>/dev/null
}

end_job() { # CODE WORDS: abort, and end here
  abort "$@"
  exit "$1"
}

# oversee NAME COMMAND...: run a process of the job to its end, watched, and return its code. Signals that come here go
# on to it. A tag in its environment finds all that it starts, whoever their parent is by now.
oversee() {
  local tag="$HPCJOB_JOB_ID $1 $$" watcher code signalled=''
  exec {watcher}> >(exec >/dev/null 2>&1 && watch "$1" "$tag")
  # Before the start: a shell's background process ignores INT and QUIT unless they are trapped.
  trap 'signalled+="HUP "' HUP
  trap 'signalled+="INT "' INT
  trap 'signalled+="QUIT "' QUIT
  trap 'signalled+="TERM "' TERM
  trap 'signalled+="USR1 "' USR1
  trap 'signalled+="USR2 "' USR2
  # The scheduler tells every process of the end to come: the job's script acts on it.
  [[ ! ${HPCJOB_NOTIFY-} ]] || trap '' USR1 USR2
  (
    exec {watcher}>&-
    export HPCJOB_PROCESS=$tag
    exec -- "${@:2}"
  ) <&0 &
  child=$!
  trap '' PIPE # that the watcher may break
  tell "$child"
  await "$child" pass_on
  tell ended
  return "$code"
}

tell() { # WORD: to the watcher, which may have been killed
  { echo "$1" >&"$watcher"; } 2>/dev/null
}

# await PID COMMAND: wait for a child, set `code`, and call COMMAND with each signal that comes meanwhile. Their traps only
# add the name and a blank to `signalled`: bash (5.2) leaves a trap in the middle when the time of the `read` that it
# interrupted runs out, and then runs no trap any more. And it is asked for the child only when that is gone: it forgets
# one that ends in the moment in which a signal comes (a launcher ends whole groups of processes), takes it for running,
# and would wait for ever.
await() {
  local tick last=KILL
  exec {tick}<> <(:) # a pipe on which nothing ever comes: reading from it waits without a process
  while is_alive "$1"; do
    read -rt 0.5 -u "$tick" || :
    heed_signals "$2"
  done
  exec {tick}<&-
  until is_lost "$1"; do
    code=0
    wait "$1" 2>/dev/null || code=$?
    [[ $signalled ]] || return 0 # else a trap has ended the wait
    heed_signals "$2"
  done
  code=$((128 + $(kill -l "$last")))
}

heed_signals() { # COMMAND: call it with each signal that was noted
  while [[ $signalled ]]; do
    last=${signalled%% *} signalled=${signalled#* } # one command: no trap comes between
    "$1" "$last"
  done
}

is_alive() { # PID: neither gone nor ended
  local value=Z
  { read -r value <"/proc/$1/stat"; } 2>/dev/null
  [[ ${value##*) } != [ZX]* ]]
}

is_lost() { # PID: gone, and bash takes it for running
  [[ ! -d /proc/$1 ]] && jobs -pr | grep -qx "$1"
}

pass_on() { # SIGNAL
  kill -s "$1" "$child" 2>/dev/null || :
}

# end_as CODE: end as the overseen process did, by the same signal: launchers tell it from a code.
end_as() {
  trap - HUP INT QUIT TERM USR1 USR2 PIPE
  if (($1 > 128 && $1 <= 143)); then # these end a process, some of the later ones stop it
    ulimit -c 0
    kill -s "$(($1 - 128))" "$$"
  fi
  exit "$1"
}

# parent_of PID: the pid of its parent; nothing once it has ended.
parent_of() {
  local key value
  while read -r key value; do
    case $key in
      State:) [[ $value != [XZ]* ]] || return 0 ;;
      PPid:) echo "$value" && return 0 ;;
    esac
  done 2>/dev/null <"/proc/$1/status"
}

# family_of PID TAG: that process and all that have its tag in their environment.
family_of() {
  local file
  [[ -z $(parent_of "$1") ]] || echo "$1"
  grep -lszFx "HPCJOB_PROCESS=$2" /proc/[0-9]*/environ | while IFS=/ read -r _ _ file _; do echo "$file"; done
}

# watch NAME TAG: runs beside a script that oversees a process, and ends that process, with all it started, when the
# script is gone, or what started the script, or the job is over. It reads the pid, and a word at the end.
watch() {
  local tick family tries child='' said='' first=TERM last=5
  trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE XCPU XFSZ
  exec {tick}<> <(:) # a pipe on which nothing ever comes: reading from it waits without a process
  read -r child || :
  until [[ $said || -e $HPCJOB_JOBDIR/abort || $(parent_of "$$") != "$PPID" ]] || is_over; do
    hear 2
  done
  [[ $said ]] || hear 0.1
  case $said in
    ended) first=0 child='' ;; # what it left behind may end by itself
    killed) is_over || abort 137 "$1 on $(uname -n) was killed" ;;
    *) [[ $1 != node* || $(parent_of "$$") != "$PPID" ]] || first=0 last=10 ;; # its ranks' watchers end them: it reports
  esac
  for ((tries = 0; tries < last; tries++)); do
    mapfile -t family < <(family_of "$child" "$2" | sort -u)
    ((${#family[@]})) || return 0
    ((tries)) || kill -s "$first" "${family[@]}" 2>/dev/null
    read -rt 2 -u "$tick" || :
  done
  mapfile -t family < <(family_of "$child" "$2")
  kill -s KILL "${family[@]}" 2>/dev/null
}

hear() { # SECONDS: set `said` to what the overseeing script says, or to what has become of it
  read -rt "$1" said || (($? > 128)) || said=killed # its end of the pipe is closed
}

is_over() { # the job has an exit record
  [[ -e $HPCJOB_JOBDIR/${HPCJOB_JOB_ID}_exit.json ]]
}
END_OF_COMMON
builtin source "$jobdir/common.sh"
cat >"$jobdir/rank.sh" <<'END_OF_RANK'
# One rank: bash rank.sh STEP_FILE. The step's file says what runs, and which launcher started this.
set -uo pipefail
builtin source "${0%/*}/env.sh"
builtin source "${0%/*}/common.sh"
builtin source "$1"
export "${variables[@]}"
cd -- "$HPCJOB_SUBMIT_DIR" || end_job 87 "check: $(uname -n): no folder $HPCJOB_SUBMIT_DIR here"

# bind_rank: set `bound` to the words that keep this rank to its part of the node, or `problem` to what is in the way.
bind_rank() {
  local cpus count numa=''
  bound=()
  case $bind:$launcher in
    cores:srun | *:none) ;; # srun binds by itself; one process has the whole node
    cores:*)
      [[ $(type -P taskset) ]] || { problem='there is no taskset' && return 1; }
      mapfile -t cpus < <(cpus_of "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)")
      count=$((${#cpus[@]} / procs_per_node))
      ((count)) || { problem="${#cpus[@]} CPUs for $procs_per_node ranks" && return 1; }
      bound=(taskset -c "$(IFS=, && echo "${cpus[*]:LOCAL_RANK * count:count}")")
      ;;
    numa:*)
      [[ $(type -P numactl) ]] || { problem='there is no numactl' && return 1; }
      numa=$(numa_of_gpu)
      count=$(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' | wc -l)
      [[ $numa =~ ^[0-9]+$ ]] || numa=$((LOCAL_RANK * count / procs_per_node))
      bound=(numactl "--cpunodebind=$numa" "--membind=$numa")
      ;;
  esac
}

cpus_of() { # LIST: write out 0-3,8
  local part
  for part in ${1//,/ }; do seq "${part%-*}" "${part#*-}"; done
}

numa_of_gpu() { # the NUMA node beside this rank's GPU; nothing where that is not known
  local gpu=$LOCAL_RANK mask place
  [[ $(type -P nvidia-smi) ]] || return 0
  if [[ ${CUDA_VISIBLE_DEVICES-} ]]; then
    IFS=, read -ra mask <<<"$CUDA_VISIBLE_DEVICES"
    gpu=${mask[LOCAL_RANK]-}
  fi
  place=$(nvidia-smi -i "$gpu" --query-gpu=pci.bus_id --format=csv,noheader 2>/dev/null) || return 0
  place=${place,,}
  cat "/sys/bus/pci/devices/${place#0000}/numa_node" 2>/dev/null || :
}

case $launcher in
  mpirun)
    export RANK=${OMPI_COMM_WORLD_RANK-${PMI_RANK-}} WORLD_SIZE=${OMPI_COMM_WORLD_SIZE-${PMI_SIZE-}}
    export LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK-${MPI_LOCALRANKID-}}
    ;;
  srun) export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID ;;
  none)
    RANK=0 WORLD_SIZE=1 LOCAL_RANK=0
    [[ $kind != train ]] || export RANK WORLD_SIZE LOCAL_RANK # other programs are left to think for themselves
    ;;
  *) ;; # torchrun has set them
esac
if [[ ! ${RANK-} || ${WORLD_SIZE-} != "$world_size" ]]; then
  end_job 87 "check: $(uname -n): $launcher started rank ${RANK:-?} of ${WORLD_SIZE:-?}, but $world_size ranks were requested"
fi
problem=''
set_limits || end_job 87 "check: $problem"
if [[ $LOCAL_RANK == 0 && $launcher != none ]]; then
  problem=$(check_gpus) || end_job 87 "check: $problem"
fi

# The log of this rank; rank 0's lines are in the job's log too. tee outlives a signal to show what the rank says of it.
log=$HPCJOB_JOBDIR/${HPCJOB_JOB_ID}_${RANK}_log.out
if ((RANK == 0)); then
  touch "$HPCJOB_JOBDIR/rank0.open" # until the last line is written
  exec > >(
    trap '' TERM INT HUP USR2
    tee -a "$log"
    rm -f "$HPCJOB_JOBDIR/rank0.open"
  ) 2>&1
else
  exec >>"$log" 2>&1
fi
if [[ ${argv[0]} == python ]]; then
  argv[0]=$python
elif [[ $container ]]; then
  argv=(bash "$container" "${argv[@]}")
fi
code=0
bind_rank || end_job 87 "check: $(uname -n): bind: $problem"
oversee "rank $RANK" "${bound[@]}" "${argv[@]}" || code=$?
if [[ $kind == train && $code == 8[56] ]]; then # a trainer that has saved and stopped has not failed
  [[ ! -e $HPCJOB_JOBDIR/outcome.json ]] || code=0 # its outcome says so; a launcher would report a failure
elif ((code)); then
  [[ -e $HPCJOB_JOBDIR/abort ]] || abort "$code" "rank $RANK on $(uname -n) ended with code $code"
fi
end_as "$code"
END_OF_RANK

describe_step() { # NUMBER: write what its ranks source after env.sh
  (umask 077 && declare -p kind launcher bind nodes procs_per_node world_size python container variables argv >"$jobdir/step$1.sh")
}

# --- Steps -------------------------------------------------------------------------------------------------------------
stop_at_s=3300 # no signal comes before the walltime here: seconds after the start
attend() { # PID: beside a step; asks it to stop in time, and ends it if this script is killed
  local tick
  exec {tick}<> <(:)
  while [[ $(parent_of "$$") ]]; do # a script that nobody has reaped is gone too
    ((SECONDS < stop_at_s)) || [[ -e $jobdir/stop ]] || ask_to_stop walltime
    read -rt 2 -u "$tick" || :
  done
  echo '137 the job script was killed' >"$jobdir/abort"
  kill -TERM "$1"
}

run_step() { # NAME COMMAND...: run a step to its end; a code other than 0 ends the job
  local code outcome tries
  step=$1
  [[ ! -e $jobdir/stop ]] || exit "$(stop_code)"
  rm -f "$jobdir/abort" # of a step that was completed all the same
  [[ $kind != train ]] || rm -f "$jobdir/outcome.json"
  "${@:2}" </dev/null &
  child=$!
  attend "$child" &
  help_by "$!"
  await "$child" heed
  child=''
  heed_signals heed
  for ((tries = 0; tries < 50; tries++)); do # the last lines of rank 0 may be on their way
    [[ -e $jobdir/rank0.open ]] || break
    sleep 0.1
  done
  [[ ! -e $jobdir/abort ]] || read -r code _ <"$jobdir/abort"
  if [[ $kind == train && -e $jobdir/outcome.json ]]; then # launchers turn every code into 1
    outcome=$(tr -d ' \n' <"$jobdir/outcome.json")
    case $outcome in
      *'"outcome":"completed"'*) code=0 ;;
      *'"outcome":"saved_for_walltime"'*) code=85 ;;
      *'"outcome":"stopped"'*) code=86 ;;
      *) code=1 ;;
    esac
  fi
  if [[ $signal != null && ! $code =~ ^(0|85|86)$ ]]; then code=$signal_code; fi
  kill -KILL "${helpers[@]}" 2>/dev/null || :
  helpers=()
  echo "hpcjob: $(date +%Y-%m-%dT%H:%M:%S%:z) step $step ended with code $code"
  ((code == 0)) || exit "$code"
}

stop_code() {
  if [[ $(<"$jobdir/stop") == walltime ]]; then echo 85; else echo 86; fi
}

# Step 1 of 1: train
kind=train launcher=mpirun bind=none nodes=2 procs_per_node=8 world_size=16
variables=(
  NEOXLITE_WORLD_SIZE=16
  OMP_NUM_THREADS=12
)
argv=(
  python -m neoxlite train
  --set train_iters=100
  -- 2-7B.yml local_setup.yml
)
describe_step 1
run_step '"train"' \
  "$mpirun" -np 16 --hostfile "$jobdir/hostfile" --map-by ppr:8:node:OVERSUBSCRIBE --bind-to none \
  bash "$jobdir/rank.sh" "$jobdir/step1.sh"
