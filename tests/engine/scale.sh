#!/usr/bin/env bash
# scale.sh ROTA SCALE job|communicators|cycles: what many ranks and communicators may cost.
#   job             256 ranks: init, barrier, all_reduce and finalize in 15 s; at most 8 MiB of Pss
#                   on each rank
#   communicators   1,000 at once on 2 ranks: at most 16 KiB each, and few descriptors (threads that
#                   sleep have some)
#   cycles          70,000 of split and destroy on 3 ranks: in 60 s; growth after the first 1,000
#                   at most 1 MiB, and few descriptors
set -euo pipefail
rota=$1 scale=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=$scratch/out

# run RANKS SECONDS ARGUMENTS...: leaves one line per rank in $out.
run() {
  local ranks=$1 most=$2 began=$EPOCHREALTIME
  shift 2
  timeout "$((most * 3))" "$rota" run -n "$ranks" -- "$scale" "$@" >"$out" 2>"$scratch/errors" ||
    { tail -n 5 "$scratch/errors"; echo "$ranks ranks of scale $*: status $?"; exit 1; }
  local lines ms=$(((${EPOCHREALTIME/./} - ${began/./}) / 1000))
  lines=$(grep -c "of $ranks: " "$out" || true)
  echo "$ranks ranks of scale $*: $ms ms"
  [ "$lines" -eq "$ranks" ] || { echo "$lines of $ranks ranks reported"; exit 1; }
  [ "$ms" -le $((most * 1000)) ] || { echo "took more than $most s"; exit 1; }
}

# most NAME: the largest value after NAME.
most() { sed -n "s/.* $1 \(-\{0,1\}[0-9]*\).*/\1/p" "$out" | sort -n | tail -n 1; }

# bound NAME VALUE LIMIT
bound() {
  echo "$1: $2, at most $3"
  [ "$2" -le "$3" ] || exit 1
}

case $3 in
  job)
    run 256 15 job
    bound "KiB of Pss" "$(most pss_kib)" 8192
    ;;
  communicators)
    run 2 15 communicators 1000
    bound "bytes of each communicator" "$(most bytes_each)" 16384
    bound "descriptors" "$(most descriptors)" 4
    ;;
  cycles)
    run 3 60 cycles 70000
    bound "KiB of growth" "$(most growth_kib)" 1024
    bound "descriptors" "$(most descriptors)" 4
    ;;
  *) echo "scale.sh: no part \"$3\""; exit 2 ;;
esac
