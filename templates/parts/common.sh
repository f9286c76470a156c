# Sourced by rank.sh and node.sh: what they share.

# end_job CODE WORDS: stop the job on all nodes; the first reason given is kept.
end_job() {
  echo "hpcjob: $2"
  (set -o noclobber && echo "$1 $2" >"$HPCJOB_JOBDIR/abort") 2>/dev/null
  exit "$1"
}

# parent_of PID: the pid of its parent; nothing once it has ended.
parent_of() {
  local key value
  while read -r key value; do
    case $key in
      State:) [[ $value != Z* ]] || return 0 ;;
      PPid:) echo "$value" && return 0 ;;
    esac
  done 2>/dev/null <"/proc/$1/status"
}

# family_of PID TAG: that process and all that have its tag in their environment, whoever their parent is by now.
family_of() {
  local file
  [[ -z $(parent_of "$1") ]] || echo "$1"
  grep -lszFx "HPCJOB_PROCESS=$2" /proc/[0-9]*/environ | while IFS=/ read -r _ _ file _; do echo "$file"; done
}

# watch PID PARENT TAG: runs beside a process of the job and ends it, with all it started, when the process that started
# it is gone or the job is over. It ends with that process.
watch() {
  local tick family tries first=TERM
  trap '' TERM INT HUP USR2
  exec {tick}<> <(:) # a pipe on which nothing ever comes: reading from it waits without a process
  while read -rt 2 -u "$tick" || [[ $(parent_of "$1") == "$2" ]]; do
    [[ ! -e $HPCJOB_JOBDIR/abort && ! -e $HPCJOB_JOBDIR/${HPCJOB_JOB_ID}_exit.json ]] || break
  done
  [[ $(parent_of "$1") ]] || first=0 # it has ended: what it left behind may end by itself
  for ((tries = 0; tries < 5; tries++)); do
    mapfile -t family < <(family_of "$1" "$3" | sort -u)
    ((${#family[@]})) || return 0
    ((tries)) || kill -s "$first" "${family[@]}" 2>/dev/null
    read -rt 2 -u "$tick" || :
  done
  mapfile -t family < <(family_of "$1" "$3")
  kill -s KILL "${family[@]}" 2>/dev/null
}
