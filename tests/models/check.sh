#!/usr/bin/env bash
# Checks one model exhaustively with spin, then that each of its mutants is caught.
#   check.sh NAME [-v]    NAME.pml beside this script; -v: also states and time of each run
# A line of the table: model, options of the model, then `passes` or `fails`. A run that should pass
# and does not, a mutant that passes, and a search that was cut short are all failures. Exit 77
# (skipped) where spin or a compiler is missing.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
model=${1:?"check.sh NAME"}
verbose=${2:-}

for tool in spin "${CC:-gcc}"; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is not installed (Debian: apt-get install spin gcc)"
    exit 77
  fi
done

table() {
  cat <<'END'
lines     passes -DMEMBERS=2 -DCALLS=5
lines     passes -DMEMBERS=3 -DCALLS=4
lines     fails  -DMUTANT_NO_RELEASE
lines     fails  -DMUTANT_NO_ACQUIRE
lines     fails  -DMUTANT_ONE_SLOT
posts     passes -DMEMBERS=2 -DCALLS=4
posts     passes -DMEMBERS=3 -DCALLS=3 -DPOSTS=1
posts     fails  -DMUTANT_NO_RELEASE
posts     fails  -DMUTANT_NO_ACQUIRE
posts     fails  -DMUTANT_NO_WAITING
posts     fails  -DMUTANT_EARLY_TELLING
posts     fails  -DMEMBERS=3 -DPOSTS=1 -DMUTANT_ONE_READER
stream    passes -DMESSAGES=5
stream    fails  -DMUTANT_NO_RELEASE
stream    fails  -DMUTANT_NO_RELEASE_OF_SLOTS
stream    fails  -DMUTANT_NO_CONSUMED
stream    fails  -DMUTANT_EARLY_GIVING
levels    passes
levels    passes -DREDUCES
levels    passes -DSPREADS
levels    fails  -DMUTANT_STAGE
levels    fails  -DMUTANT_PARTIAL
levels    fails  -DMUTANT_COMBINE_FETCH
levels    fails  -DMUTANT_COMBINE_GATHER
levels    fails  -DMUTANT_GATHER_LAST
levels    fails  -DSPREADS -DMUTANT_NO_LINES
levels    fails  -DREDUCES -DMUTANT_NO_END
doorbell  passes
doorbell  passes -DFENCING_PUBLISHERS
doorbell  passes -DINTERRUPT
doorbell  fails  -DMUTANT_NO_MEMBARRIER
doorbell  fails  -DMUTANT_NO_SECOND_LOOK
doorbell  fails  -DFENCING_PUBLISHERS -DMUTANT_NO_PUBLISHER_FENCE
doorbell  fails  -DFENCING_PUBLISHERS -DMUTANT_NO_SLEEPER_FENCE
doorbell  fails  -DINTERRUPT -DMUTANT_LATE_INTERRUPTS
views     passes -DN=3 -DB=4
views     passes -DN=4 -DB=3
views     fails  -DN=3 -DMUTANT_NO_ADOPTION
views     fails  -DN=3 -DMUTANT_SHRINKING
views     fails  -DN=4 -DMUTANT_LATE
views     fails  -DN=4 -DMUTANT_NO_DROP
END
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0
runs=0
while read -r name wanted options; do
  [ "$name" = "$model" ] || continue
  runs=$((runs + 1))
  rm -f pan* ./*.trail
  # -O1: gcc takes longer over the large models with more than a search gains by it.
  # shellcheck disable=SC2086
  if ! spin $options -a "$folder/$name.pml" >spin.log 2>&1 || grep -q Error: spin.log ||
    ! "${CC:-gcc}" -O1 -DSAFETY -DCOLLAPSE -DMEMLIM=2000 -o pan pan.c >gcc.log 2>&1; then
    cat spin.log gcc.log 2>/dev/null >&2 || true
    echo "FAILED $name $options: no program"
    failed=1
    continue
  fi
  began=$(date +%s%N)
  timeout 240 ./pan -m100000 -w22 >out 2>&1 || true
  took=$((($(date +%s%N) - began) / 1000000))
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
  if grep -q 'errors: [1-9]' out; then
    result=fails
  elif grep -q 'errors: 0' out && ! grep -qE 'Search not completed|max search depth|error:' out; then
    result=passes
  else
    result="was cut short"
  fi
  if [ "$result" = "$wanted" ]; then
    [ -z "$verbose" ] || echo "ok     $name $options: $result, $states states, $took ms"
  else
    echo "FAILED $name $options: $result, should be: $wanted ($states states, $took ms)"
    tail -n 40 out >&2
    if [ -n "$(ls ./*.trail 2>/dev/null)" ]; then
      cp ./*.trail "$folder/" 2>/dev/null || true
      # shellcheck disable=SC2086
      spin $options -t -p -g "$folder/$name.pml" 2>&1 | tail -n 60 >&2 || true
      rm -f "$folder"/*.trail
    fi
    failed=1
  fi
done < <(table)
if [ "$runs" -eq 0 ]; then
  echo "FAILED: no model $model"
  exit 1
fi
exit $failed
