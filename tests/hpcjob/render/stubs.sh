#!/bin/bash
# Stand-ins for launchers and schedulers' commands, run under their names; and the program that is the job. They start
# processes as the real ones do, as far as a script can see.
set -u

wait_for_all() { # the largest code of all that were started
  local largest=0 code pid
  for pid in "${started[@]}"; do
    code=0
    wait "$pid" || code=$?
    ((code <= largest)) || largest=$code
  done
  exit "$largest"
}

# A lone `:` begins another program for mpirun and srun.
for word in "$@"; do [[ $word != : || ${0##*/} == python ]] || exit 99; done
started=()

case ${0##*/} in
  mpirun) # -np N ... bash SCRIPT
    while [[ $1 != bash ]]; do
      [[ $1 != -np ]] || total=$2
      shift
    done
    per_node=$STUB_GPUS
    for ((i = 0; i < total; i++)); do
      OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$total OMPI_COMM_WORLD_LOCAL_RANK=$((i % per_node)) "$@" &
      started+=("$!")
    done
    wait_for_all
    ;;
  srun) # --ntasks=N --ntasks-per-node=P ... COMMAND; with pyxis in an image, whose PATH is its own
    [[ $1 != --help ]] || { echo "${STUB_PYXIS-}" && exit 0; }
    while [[ $1 == -* ]]; do
      [[ $1 != --container-* ]] || printf '%s\n' "$1" >>"$STUB_CALLS"
      [[ $1 != --container-image=* ]] || export PATH=/image/bin:$PATH IMAGE=${1#*=}
      [[ $1 != --export=ALL,* ]] || export "${1#--export=ALL,}"
      [[ $1 != --ntasks=* ]] || total=${1#*=}
      [[ $1 != --ntasks-per-node=* ]] || per_node=${1#*=}
      shift
    done
    for ((i = 0; i < total; i++)); do
      SLURM_PROCID=$i SLURM_NTASKS=$total SLURM_LOCALID=$((i % per_node)) "$@" &
      started+=("$!")
    done
    wait_for_all
    ;;
  pdsh) # -w HOST,HOST ... words: joined by blanks, %n and %% replaced, given to a shell with a bare environment
    while [[ $1 != bash ]]; do
      [[ $1 != -w ]] || IFS=, read -ra hosts <<<"$2"
      shift
    done
    for i in "${!hosts[@]}"; do
      text="$*"
      text=${text//%%/@PERCENT@}
      text=${text//%n/$i}
      (cd / && exec env -i PATH=/usr/bin:/bin STUB_GPUS="$STUB_GPUS" /bin/sh -c "${text//@PERCENT@/%}") &
      started+=("$!")
    done
    wait_for_all
    ;;
  scontrol) # show hostnames LIST
    printf '%s\n' ${STUB_HOSTS//,/ }
    ;;
  getent) # hosts NAME: every name has an address but those that STUB_HOSTS does not name
    [[ ,$STUB_HOSTS, == *,$2,* ]]
    ;;
  nvidia-smi)
    [[ ${1-} != -L ]] || for ((i = 0; i < STUB_GPUS; i++)); do echo "GPU $i: NVIDIA H200 (UUID: GPU-$i)"; done
    ;;
  python) # has every package
    case ${1-} in
      -c) exit 0 ;;
      */check_versions.py) echo "hpcjob: versions ${*:2}" && exit 0 ;;
    esac
    if [[ "${1-} ${2-}" == "-m torch.distributed.run" ]]; then # torchrun's agent
      while [[ $1 != --no-python ]]; do
        case $1 in
          --nnodes) nodes=$2 ;;
          --node-rank) node=$2 ;;
          --nproc-per-node) each=$2 ;;
        esac
        shift
      done
      shift
      for ((i = 0; i < each; i++)); do
        RANK=$((node * each + i)) WORLD_SIZE=$((nodes * each)) LOCAL_RANK=$i "$@" &
        started+=("$!")
      done
      wait_for_all
    fi
    # The job: write down what arrived, and do what WORK says.
    place=$HPCJOB_JOBDIR/arrived${STEP-}.${RANK-none}
    printf '%s\0' "$PWD" "$@" >"$place.argv"
    env -0 >"$place.env"
    echo "rank ${RANK-none} speaks"
    eval "${WORK-}"
    ;;
esac
