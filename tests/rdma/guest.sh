#!/usr/bin/env bash
# guest.sh BUILD TRANSPORT SEED PART...: what script/test-rdma runs inside a virtual machine (or on a
# machine with an adapter) over one transport. A line for each check, with its seconds; the output
# of one that fails. Exit status: 0 when all passed.
#
# Parts: sample, one, matrix (one device); pair, mixed, faults (two devices rxe0 and rxe1 on a cable
# between the interfaces rd0 and rd1, ranks by turns on the one and the other); machines (two virtual
# machines with two ranks each). FULL=1 takes larger samples.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$1 transport=$2 seed=$3
shift 3
source=$(dirname "$(dirname "$here")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
rota=$build/bin/rota tests=$build/tests
failed=0 passed=0
full=${FULL:-0}
# times SMALL LARGE: the one, or with FULL=1 the other.
times() { if [ "$full" = 1 ]; then echo "$2"; else echo "$1"; fi; }
export ROTA_TIMEOUT_MS=60000 ROTA_INIT_TIMEOUT_MS=120000 ROTA_RECORD_DIR=$folder/records
export ROTA_RDMA_DEVICE=${ROTA_RDMA_DEVICE:-}

# check LIMIT NAME COMMAND...: the limit, in seconds, is that of the small sample.
check() {
  local limit=$(($1 * $(times 1 25))) name=$2 began=$SECONDS status=0
  shift 2
  timeout -k 5 "$limit" "$@" >"$folder/out" 2>&1 </dev/null || status=$?
  if [ $status = 0 ]; then
    passed=$((passed + 1))
    printf 'ok     %-44s %3d s  %s\n' "$name" $((SECONDS - began)) "$(grep -v '^$' "$folder/out" | tail -n 1 | cut -c 1-90)"
    return 0
  fi
  failed=$((failed + 1))
  [ $status = 124 ] && echo "(took more than $limit s)" >>"$folder/out"
  printf 'FAILED %-44s %3d s  status %d: %s\n' "$name" $((SECONDS - began)) "$status" "$*"
  tail -n 40 "$folder/out" | sed 's/^/       | /'
}

# job LIMIT NAME RANKS DEVICES COMMAND...: ranks as processes; DEVICES as for rank.sh.
job() {
  local limit=$1 name=$2 ranks=$3 devices=$4
  shift 4
  check "$limit" "$name" "$rota" run -n "$ranks" --no-prefix -- "$here/rank.sh" "$devices" "$@"
}

matrix() { # LIMIT NAME ARGUMENTS...: ranks as threads
  local limit=$1 name=$2
  shift 2
  check "$limit" "$name" "$tests/test_matrix" --transport "$transport" --seed "$seed" "$@"
}

part_sample() {
  check 100 "rota info" "$rota" info
  job 200 "matrix, 4 ranks on two devices" 4 turns "$tests/test_matrix" --joined \
    --transport "$transport" --seed "$seed" --samples 60
  part_mixed_bits 65536
  faults kills 1
  faults cuts 1
}

part_one() {
  check 100 "rota info" "$rota" info
  if [ "$transport" = verbs ]; then
    check 400 "conformance of the transport" env ROTA_TEST_REAL_DEVICE=1 \
      "$tests/test_transport_verbs" -j 2
    check 200 "crossing connections" "$tests/test_crossing_threads" verbs
    no_memory
  fi
  local name
  for name in messages requests group split vector plans operators quiesce; do
    check 300 "engine: $name" env ROTA_TEST_WAY="$transport" "$tests/test_engine_$name"
  done
}

part_matrix() {
  local algorithm
  matrix 300 "matrix: threads" --ranks 2,4 --samples "$(times 60 1500)"
  matrix 300 "matrix: threads, slices of 512 bytes" --ranks 3,4 --slice 512 --samples "$(times 40 1000)"
  matrix 300 "matrix: mock memory" --ranks 4 --memory mock --delay 50 --samples "$(times 20 500)"
  for algorithm in $("$rota" info | sed -n 's/^  \([a-z_]*\) .*/\1/p' | sort -u); do
    grep -q "ALGORITHM($algorithm)" "$source/algorithms/algorithms.def" || continue
    matrix 300 "matrix: $algorithm" --algorithm "$algorithm" --ranks 4 --slice 1000 \
      --samples "$(times 20 400)"
  done
  job 600 "all operations, all sizes" 4 any "$rota" bench --all -b 8 -e "$(times 1M 64M)" -f 32 \
    -n 1 -w 0 --transport "$transport"
  job 600 "all-reduce by every algorithm" 4 any "$rota" bench all_reduce -b 8 \
    -e "$(times 256K 16M)" -f 64 -n 1 -w 0 --algorithm all --transport "$transport"
}

# Bytes per packet on the wire, with headers, at a setting of ROTA_RDMA_MTU.
packets_of() { # MTU LEAST MOST
  local at=/sys/class/net/rd0/statistics before after
  before=($(cat $at/tx_packets $at/tx_bytes))
  ROTA_RDMA_MTU=$1 ROTA_TRANSPORT=verbs "$rota" run -n 2 --no-prefix -- "$here/rank.sh" turns \
    "$build/tests/stream" bandwidth 1048576 20 || return 1
  after=($(cat $at/tx_packets $at/tx_bytes))
  local each=$(((after[1] - before[1]) / (after[0] - before[0])))
  echo "$each bytes per packet"
  [ $each -ge "$2" ] && [ $each -le "$3" ]
}

part_pair() {
  if [ "$transport" = verbs ]; then
    check 200 "packets as large as the link has" bash -c "packets_of auto 3600 4200"
    check 200 "packets of 1024 bytes by setting" bash -c "packets_of 1024 900 1200"
  fi
  job 300 "matrix, 2 ranks on two devices" 2 turns "$tests/test_matrix" --joined \
    --transport "$transport" --seed "$seed" --samples "$(times 60 1500)"
  job 300 "matrix, 4 ranks on two devices" 4 turns "$tests/test_matrix" --joined \
    --transport "$transport" --seed "$seed" --samples "$(times 60 1500)"
  job 300 "matrix, 4 ranks, slices of 4096 bytes" 4 halves "$tests/test_matrix" --joined \
    --transport "$transport" --seed "$seed" --slice 4096 --samples "$(times 40 1000)"
  job 300 "all-reduce of all sizes" 4 turns "$rota" bench all_reduce -b 8 -e "$(times 4M 64M)" \
    -f 8 -n 1 -w 0 --transport "$transport"
  job 300 "messages in a ring" 4 turns "$rota" bench send_recv -b 8 -e "$(times 4M 64M)" -f 8 \
    -n 2 -w 0 --transport "$transport"
}

# -- a mixed job --------------------------------------------------------------------------------

# hashes TRANSPORT LARGEST [ARGUMENTS...]: "size hash" of every row, of two pretended hosts of two ranks.
hashes() {
  "$rota" run --hosts 2+2 --no-prefix -- "$here/rank.sh" halves "$rota" bench all_reduce -b 40 -e "$2" \
    -f 128 -d bfloat16 -n 1 -w 0 --mode reproducible --hash --transport "$1" "${@:3}" \
    >"$folder/bench" || return 1
  awk '!/^#/ { print $1, $14; if ($15 != "N/A") print $1, $15 }' "$folder/bench" | sort -u
}

same_bits() {
  hashes tcp "$@" >"$folder/tcp" && hashes "shm,$transport" "$@" >"$folder/mixed" || return 1
  [ "$(wc -l <"$folder/tcp")" -ge 2 ] || { echo "too few hashes"; return 1; }
  cmp "$folder/tcp" "$folder/mixed" && echo "$(wc -l <"$folder/tcp") sizes, one hash each"
}
export -f hashes same_bits packets_of
export here build rota folder transport

part_mixed_bits() {
  check 300 "mixed job: TCP's bits, reproducible" bash -c "same_bits $*"
}
part_mixed() { part_mixed_bits "$(times 655360 16M)" --algorithm all; }

# -- faults -------------------------------------------------------------------------------------

# faults KIND TRIES
faults() {
  check $((300 + $2 * 60)) "faults: $2 $1" python3 "$source/script/faults" \
    --program "$tests/campaign_rank" --transport "$transport" --rdma rxe0@rd0,rxe1@rd1 \
    --slow "${SLOW:-10}" --ranks 4 --seed "$seed" --"$1" "$2"
}
part_faults() {
  faults kills "$(times 10 25)"
  faults stops "$(times 10 25)"
  faults cuts "$(times 10 25)"
  faults idle-cuts "$(times 10 25)"
  faults losses "$(times 10 25)"
}

# -- limits -------------------------------------------------------------------------------------

# limited KIB COMMAND...: as another user than root, who may lock any memory.
limited() {
  setpriv --reuid 65534 --regid 65534 --clear-groups bash -c 'ulimit -l "$1" && shift && exec "$@"' \
    - "$@"
}
# C79 with a device: the job runs over other transports, and each rank warns once, with the call.
falls_back() { # KIB
  limited "$1" "$rota" bench all_reduce --ranks 4 -b 8 -e 64K -f 64 -n 2 >"$folder/table" \
    2>"$folder/err" || { cat "$folder/err"; return 1; }
  cat "$folder/err"
  grep -q '^# Out of bounds values : 0 OK' "$folder/table" &&
    [ "$(grep -c 'transport verbs is not used: .*ibv_reg_mr' "$folder/err")" = 4 ] &&
    [ "$(grep -vc '^libibverbs: \|severely limit' "$folder/err")" = 4 ]
}
tells_why() { # KIB
  limited "$1" "$rota" info | grep 'cannot be registered' &&
    limited "$1" "$rota" doctor | grep -A 1 'PROBLEM *rdma memory'
}
no_memory() {
  local kib
  chmod 755 "$folder"
  local -x ROTA_RECORD_DIR=
  chmod a+rw /dev/infiniband/*
  for kib in 64 0; do
    check 100 "C79: ulimit -l $kib" bash -c "falls_back $kib"
    check 100 "C79: rota info with ulimit -l $kib" bash -c "tells_why $kib"
  done
}
export -f limited falls_back tells_why

# -- two machines -------------------------------------------------------------------------------

next_port=7100
# machines LIMIT NAME COMMAND...: two ranks here, and two on the other machine.
machines() {
  local limit=$1 name=$2
  shift 2
  next_port=$((next_port + 1))
  # shellcheck disable=SC2016 # expanded in the inner shell
  check "$limit" "$name" env ROTA_SIZE=4 ROTA_ROOT=10.77.0.1:$next_port \
    ROTA_JOB_KEY="the key of two machines" bash -c '
      ROTA_RANK=$((2 * VM_RANK)) "$@" & first=$!
      ROTA_RANK=$((2 * VM_RANK + 1)) "$@" & second=$!
      status=0
      wait $first || status=$?
      wait $second || status=$?
      exit $status' - "$@"
}

part_machines() {
  machines 300 "two machines: matrix" "$tests/test_matrix" --joined --transport "$transport" \
    --seed "$seed" --samples "$(times 60 1500)"
  machines 300 "two machines: matrix, shm inside" "$tests/test_matrix" --joined \
    --transport "shm,$transport" --seed "$seed" --samples "$(times 60 1500)"
  machines 300 "two machines: all-reduce of all sizes" "$rota" bench all_reduce -b 8 \
    -e "$(times 4M 64M)" -f 8 -n 1 -w 0 --transport "$transport"
  local way
  for way in tcp "shm,$transport"; do
    machines 300 "two machines: hashes over $way" bash -c '"$@" | tee "'"$folder"'/hash.$ROTA_RANK"' - \
      "$rota" bench all_reduce -b 40 -e 655360 -f 128 -d bfloat16 -n 1 -w 0 --mode reproducible \
      --hash --transport "$way"
    [ "$VM_RANK" = 1 ] || awk '!/^#/ { print $1, $14, $15 }' "$folder/hash.0" >"$folder/${way%%,*}"
  done
  [ "$VM_RANK" = 1 ] || check 10 "two machines: TCP's bits, reproducible" cmp "$folder/tcp" "$folder/shm"
  check 200 "two machines: the wire is cut" python3 "$here/machines.py" "$tests/campaign_rank" \
    "$transport" "$seed" cut
  check 200 "two machines: cut while idle" python3 "$here/machines.py" "$tests/campaign_rank" \
    "$transport" "$seed" idle-cut
  check 200 "two machines: a rank is killed" python3 "$here/machines.py" "$tests/campaign_rank" \
    "$transport" "$seed" kill
}

for part; do
  "part_$part"
done
echo "$passed passed, $failed failed (seed $seed)"
[ $failed = 0 ] && [ $passed -gt 0 ]
