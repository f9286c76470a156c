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
