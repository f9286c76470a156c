# One node: bash node.sh STEP_FILE NODE_RANK|mpirun|srun. Starts torchrun's agent, which starts the ranks of this node.
set -uo pipefail
builtin source "${0%/*}/env.sh"
builtin source "${0%/*}/common.sh"
builtin source "$1"
export "${variables[@]}"
cd -- "$HPCJOB_SUBMIT_DIR" || end_job 87 "check: $(uname -n): no folder $HPCJOB_SUBMIT_DIR here"

case $2 in
  mpirun) node_rank=$OMPI_COMM_WORLD_RANK ;;
  srun) node_rank=$SLURM_PROCID ;;
  *) node_rank=$2 ;;
esac
unset "${!OMPI_COMM_WORLD_@}" "${!PMI_@}" "${!PMIX_@}" # the agent's own; its ranks would take them for theirs
# A rank watches itself: the tag of its agent is taken from it.
code=0
oversee "node $node_rank" "$python" -m torch.distributed.run --nnodes "$nodes" --node-rank "$node_rank" \
  --nproc-per-node "$procs_per_node" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
  --no-python env -u HPCJOB_PROCESS bash "${0%/*}/rank.sh" "$1" || code=$?
((code == 0)) || end_job "$code" "node $(uname -n): its ranks ended with code $code"
