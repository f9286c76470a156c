#!/bin/bash
#PBS -N gpt-2.7B
#PBS -W group_list=gex12345
#PBS -q regular-g
#PBS -l select=2:mpiprocs=1
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -k oed
#PBS -m n
#PBS -r n
# Miyabi-G, JCAHPC: made by hpcjob 0.1.0
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
echo "hpcjob: $(date +%Y-%m-%dT%H:%M:%S%:z) job $job_id on $(uname -n):" '2 x 1 GPU, 2 x 1 rank, walltime 01:00:00; train (mpirun)'

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

load_module nvidia/25.9
load_module nv-hpcx/25.9
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
  echo "$host slots=1"
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
    echo "$(uname -n): GPUs: 1 requested, but it has no nvidia-smi"
    return 1
  fi
  count=$(nvidia-smi -L | grep -c '^GPU ') || :
  if [[ ${CUDA_VISIBLE_DEVICES-} ]] && IFS=, read -ra mask <<<"$CUDA_VISIBLE_DEVICES" && ((${#mask[@]} <= count)); then
    count=${#mask[@]} # those of the node that are this job's
  fi
  if ((count != 1)); then
    echo "$(uname -n): GPUs: 1 requested, but it has $count"
    return 1
  fi
}
problem=$(check_gpus) || fail "$problem"

cat >"$jobdir/check_versions.py" <<'END_OF_CHECK'
...
END_OF_CHECK
"$python" "$jobdir/check_versions.py" - - torch

set_limits() { :; }

# --- Environment of the ranks ----------------------------------------------------------------------------------------
export NCCL_SOCKET_IFNAME=ibP2s2
export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,NET,ENV
export NCCL_DEBUG_FILE=${jobdir//%/%%}/nccl.%h.%p.log
# A hang leaves what each rank was doing, for `hpcjob explain` (PyTorch 2.8 and later).
mkdir -p "$jobdir/comm_traces"
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=$jobdir/comm_traces/nccl_trace_rank_
export HPCJOB_JOB_ID=$job_id HPCJOB_JOBDIR=$jobdir HPCJOB_SUBMIT_DIR=$submit_dir
export NEOXLITE_STOP_FILE=$jobdir/stop NEOXLITE_OUTCOME_FILE=$jobdir/outcome.json
export NEOXLITE_METRICS_FILE=$jobdir/metrics.jsonl NEOXLITE_INTERNET=0
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
  (umask 077 && { environment && declare -f check_gpus set_limits && declare -px NCCL_SOCKET_IFNAME; } >"$jobdir/env.sh")
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
...
END_OF_COMMON
builtin source "$jobdir/common.sh"
cat >"$jobdir/rank.sh" <<'END_OF_RANK'
...
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
kind=train launcher=mpirun bind=none nodes=2 procs_per_node=1 world_size=2
variables=(
  NEOXLITE_WORLD_SIZE=2
)
argv=(
  python -m neoxlite train
  --set train_iters=100
  -- 2-7B.yml local_setup.yml
)
describe_step 1
run_step '"train"' \
  "$mpirun" -np 2 --hostfile "$jobdir/hostfile" --map-by ppr:1:node:OVERSUBSCRIBE --bind-to none \
  bash "$jobdir/rank.sh" "$jobdir/step1.sh"
