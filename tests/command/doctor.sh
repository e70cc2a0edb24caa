#!/usr/bin/env bash
# `rota doctor`: what it says of jobs that differ, wait, wait in a ring, die and run well, and of
# the machine.
. "$(dirname "$0")/check.sh"
rank=$(dirname "$2")/tests/doctor_rank
export ROTA_RECORD_DIR=$folder/recordings ROTA_TIMEOUT_MS=60000

# says PATTERN...: the last output has a line for each, in this order.
says() {
  local from=1 found pattern
  for pattern; do
    found=$(tail -n +"$from" "$folder/out" | grep -nE -m 1 -e "$pattern" | cut -d: -f1)
    [ -n "$found" ] || { cat "$folder/out" >&2; fail "no line with: $pattern"; }
    from=$((from + found))
  done
}
silent_on() {
  grep -qE -e "$1" "$folder/out" && { cat "$folder/out" >&2; fail "a line with: $1"; }
  return 0
}

# begin N ACTIONS...: a job in the background, $job; until its state matches, at most 10 s: reach PATTERN.
begin() {
  rm -rf "$ROTA_RECORD_DIR"
  "$rota" run --keep-going -n "$1" -- "$rank" "${@:2}" >"$folder/job" 2>&1 &
  job=$!
}
reach() {
  local i
  for i in $(seq 100); do
    "$rota" doctor "$ROTA_RECORD_DIR" >"$folder/out" 2>"$folder/err"
    grep -qE -e "$1" "$folder/out" && return 0
    sleep 0.1
  done
  cat "$folder/out" "$folder/err" "$folder/job" >&2
  fail "never said: $1"
}
finish() {
  kill "$job" 2>/dev/null
  wait "$job" 2>/dev/null
  return 0
}

# -- arguments
refused "one folder" "$rota" doctor a b
refused "not both" "$rota" doctor a --pid 1
refused "--pid" "$rota" doctor --pid x
refused "DIR" "$rota" doctor ""
expect 1 "$rota" doctor "$folder/no-such-folder"
grep -q "no-such-folder" "$folder/err" || fail "the folder is not named"
mkdir "$folder/empty"
expect 1 "$rota" doctor "$folder/empty"
grep -q "holds no recording" "$folder/err" || fail "what is missing is not said"
expect 1 "$rota" doctor --pid 1
expect 0 "$rota" doctor --help

# -- a clean end leaves nothing
expect 0 "$rota" run -n 2 -- "$rank" r3
[ -z "$(ls -A "$ROTA_RECORD_DIR")" ] || fail "recordings after a clean end"

# -- one rank is missing: who, what, how long, what it does instead
begin 3 1=r4,w60000 r6
reach 'world \(3 ranks\): INCOMPLETE: not all have begun call #5'
says 'job [0-9a-f]{32}, 3 ranks, recordings of 3' 'rank 0 .*: running' 'rank 2 .*: running' \
  'ranks 0, 2 are in all_reduce #5 \(float32 sum, 1000\).*, for [0-9.]+ (ms|s)' \
  'rank 1 has not called #5; the last call of rank 1 was all_reduce #4' 'rank 1 is in no call' \
  'ranks 0, 2 wait for rank 1 in all_reduce #5 .* on world, for' \
  'look at rank 1 first \(.*, pid [0-9]+\): others wait for it' 'arrival on world'
silent_on 'CYCLE|DIVERGE|DEAD|FAILED'
expect 1 "$rota" doctor "$ROTA_RECORD_DIR"
# One of the ranks, asked by its process; and the folder of the job itself.
pid=$(sed -nE 's/^  rank 2 \(.*, pid ([0-9]+)\).*/\1/p' "$folder/out")
expect 1 "$rota" doctor --pid "$pid"
says "rank 2 of 3 \(.*, pid $pid\)" 'in all_reduce #5 .* on world, for .*, waits for member 1' \
  'look at rank 1 first'
expect 1 "$rota" doctor "$ROTA_RECORD_DIR"/*
finish

# -- ranks differ: groups by call
ROTA_CHECK=off begin 4 1=r4,g,w60000 r4,r1,w60000
reach 'world \(4 ranks\): ranks DIVERGE at call #5'
says 'ranks 0, 2, 3 .* all_reduce #5 \(float32 sum, 1000\)' 'rank 1 .* all_gather #5 \(float32, 1000\)'
finish

# -- rings: two communicators in another order; three ranks that all receive first
begin 2 0=split,tr1,w20,tr1,r1 1=split,tr1,w20,g,tr1
reach 'CYCLE, none of these can go on'
says 'rank 0 is in all_reduce #2 .* on tp instead' 'CYCLE' \
  'rank 0, in all_reduce #2 .* on tp, waits for rank 1' \
  'rank 1, in all_gather #2 .* on world, waits for rank 0'
finish
begin 3 0=v1 1=v2 2=v0
reach 'CYCLE'
says 'rank 0, in recv \(float32, 1000\) from member 1, tag 7 on world, waits for rank 1' \
  'rank 1, in recv .* from member 2' 'rank 2, in recv .* from member 0'
finish

# -- killed in the middle: the recording tells it afterwards
begin 3 1=r70,w100,kill r71,w60000
reach 'rank 1 .* DEAD: its process ended without leaving the job'
finish
expect 1 "$rota" doctor "$ROTA_RECORD_DIR"
says 'rank 1 .* DEAD' 'world \(3 ranks\)' 'rank 1 has not called #71; the last call of rank 1 was all_reduce #70' \
  'rank 1 is in no call: it is dead'

# -- a deadline that passed: the failure is told with its text
ROTA_TIMEOUT_MS=300 begin 2 1=r2,w1000 r3
wait "$job"
expect 1 "$rota" doctor "$ROTA_RECORD_DIR"
says 'rank 0 .*' 'FAILED with .* on world at .*: all_reduce #3' 'rank 0 waited for rank 1 in all_reduce #3'

# -- all is well
begin 2 r100,w60000
reach 'all have ended call #100'
expect 0 "$rota" doctor "$ROTA_RECORD_DIR"
silent_on 'waits|INCOMPLETE|FAILED'
# A damaged file is left out and counted.
head -c 100 /dev/urandom >"$(echo "$ROTA_RECORD_DIR"/*/)rank-1.rota"
"$rota" doctor "$ROTA_RECORD_DIR" >"$folder/out"
says '2 ranks, recordings of 1' '1 file is no recording' 'bring the files of all hosts'
finish

# -- the machine
expect 0 "$rota" doctor
says '^(ok|note) +memlock' '^(ok|note) +nofile' '^(ok|note) .*/dev/shm' '^ok +memfd' '^(ok|note) +clock' \
  '^(ok|note) +cores +[0-9]+ usable' '^ok +interface' '^ok +ports' '^ok +launcher .*job of one rank' \
  'key +none given' "recordings +written to $ROTA_RECORD_DIR" 'ROTA_TIMEOUT_MS=60000' 'ROTA_RECORD_DIR='
[ -z "$(find "$ROTA_RECORD_DIR" -name 'rank-*' -newer "$folder/job")" ] || fail "preflight left a file"
status=0
(ulimit -n 100 && exec "$rota" doctor) >"$folder/out" 2>&1 || status=$?
[ "$status" = 1 ] || fail "100 descriptors: status $status"
says '^PROBLEM +nofile +100 descriptors' '-> raise it: ulimit -n'
expect 1 env ROTA_TIMEOUT_MS=soon "$rota" doctor
says '^PROBLEM +setting .*ROTA_TIMEOUT_MS'
expect 1 env ROTA_RECORD_DIR=/proc/sys "$rota" doctor
says '^PROBLEM +recordings +cannot be written: /proc/sys'
expect 1 env ROTA_INTERFACE=nosuch0 "$rota" doctor
says '^PROBLEM +interface .*nosuch0'
expect 1 env RANK=0 "$rota" doctor
says '^PROBLEM +launcher +RANK is set and WORLD_SIZE is not'
expect 0 env ROTA_JOB_KEY=0123456789abcdefSECRET RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 "$rota" doctor
says '^ok +launcher +torchrun .*RANK=0, WORLD_SIZE=2, MASTER_ADDR=h: rota_init takes this' '^ok +key +ROTA_JOB_KEY is set'
silent_on SECRET
expect 0 env ROTA_PORT_RANGE=45000-45010 "$rota" doctor
says '^(ok|note) +ports +[0-9]+ of 11 ports'
exit 0
