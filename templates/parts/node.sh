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
tag=$HPCJOB_JOB_ID.node$node_rank.$$
HPCJOB_PROCESS=$tag "$python" -m torch.distributed.run --nnodes "$nodes" --node-rank "$node_rank" \
  --nproc-per-node "$procs_per_node" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
  --no-python bash "${0%/*}/rank.sh" "$1" &
agent=$!
(watch "$agent" "$$" "$tag" </dev/null >/dev/null 2>&1 &)

trap 'kill -TERM "$agent" 2>/dev/null; signalled=1' TERM INT HUP
while :; do
  signalled='' code=0
  wait "$agent" || code=$?
  [[ $signalled ]] || break # a trap ended the wait, not the agent
done
((code == 0)) || end_job "$code" "node $(uname -n): its ranks ended with code $code"
