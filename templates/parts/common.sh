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
