#!/usr/bin/env bash
# bench.sh BUILD PAIRS [TRANSPORT]: rota beside perftest on this machine's first RDMA device, both
# ends here: pairs of runs, one of each by turns, and the median of their ratios. One row per size,
# then the least half round trip of 8 bytes. Sizes and numbers of messages: SIZES, as "65536:2000".
set -u
build=$1 pairs=$2 transport=${3:-verbs}
device=${ROTA_RDMA_DEVICE:-$(ls /sys/class/infiniband 2>/dev/null | sort -V | head -n 1)}
[ -n "$device" ] || { echo "rdma-bench: there is no RDMA device" >&2; exit 77; }
command -v ib_write_bw >/dev/null && command -v ib_write_lat >/dev/null ||
  { echo "rdma-bench: ib_write_bw and ib_write_lat are needed (package perftest)" >&2; exit 77; }
export ROTA_RDMA_DEVICE=$device ROTA_TIMEOUT_MS=60000
address=$("$build/bin/rota" info | sed -n "s/^  ${device%%:*}:1 .*address \([0-9a-f.:]*\), MTU.*/\1/p")
[ "$transport" = verbs ] || address=${address:-10.77.0.1}
[ -n "$address" ] || { echo "rdma-bench: $device is not used: see rota info" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"; kill $(jobs -p) 2>/dev/null' EXIT
port=18600

# perftest PROGRAM COLUMN ARGUMENTS...: that column of its row.
perftest() {
  local program=$1 column=$2 try
  shift 2
  port=$((port + 1))
  "$program" -F -R -d "${device%%:*}" -p $port "$@" >"$folder/server" 2>&1 </dev/null &
  local server=$!
  for try in 1 2 3 4 5 6 7 8; do # until the server listens
    sleep 0.5
    timeout 100 "$program" -F -R -d "${device%%:*}" -p $port "$@" "$address" >"$folder/client" 2>&1 \
      </dev/null && break
    kill -0 $server 2>/dev/null || break
  done
  wait $server
  awk -v size="$size" -v column="$column" '$1 == size { print $column }' "$folder/client"
}

rota() {
  timeout 200 "$build/bin/rota" run -n 2 --no-prefix -- "$build/tests/stream" "$@" 2>"$folder/err"
}

# add NAME A B: the ratio a to b of the numbers in fields A and B of the last line.
median() { sort -n | awk '{ v[NR] = $1 } END { if (NR) printf "%.3f\n", v[int((NR + 1) / 2)] }'; }

export ROTA_TRANSPORT=$transport
echo "device $device ($address), transport $transport, $pairs pairs per row, $(nproc) cores, $(uname -r)"
printf '%10s  %22s  %22s  %8s\n' bytes "ib_write_bw GB/s" "rota GB/s" "ratio"
status=0
for row in ${SIZES:-65536:400 262144:100 1048576:40 4194304:10}; do
  size=${row%:*} count=${row#*:}
  : >"$folder/ratios"; theirs='' ours=''
  for ((i = 0; i < pairs; i++)); do
    a=$(perftest ib_write_bw 4 -s "$size" -n "$count" | awk '{ printf "%.4f", $1 * 1.048576e-3 }')
    b=$(rota bandwidth "$size" "$count")
    [ -n "$a" ] && [ -n "$b" ] || { tail -n 5 "$folder/client" "$folder/err" >&2; status=1; break; }
    awk -v a="$a" -v b="$b" 'BEGIN { if (a > 0) print b / a }' >>"$folder/ratios"
    theirs+="$a " ours+="$b "
  done
  printf '%10s  %22s  %22s  %8s\n' "$size" "$(tr ' ' '\n' <<<"$theirs" | grep . | median)" \
    "$(tr ' ' '\n' <<<"$ours" | grep . | median)" "$(median <"$folder/ratios")"
done
size=8
: >"$folder/ratios"; theirs='' ours=''
for ((i = 0; i < pairs; i++)); do
  a=$(perftest ib_write_lat 3 -s 8 -n "${ROUNDS:-1000}")
  b=$(rota latency 8 "${ROUNDS:-1000}" | cut -d ' ' -f 1)
  [ -n "$a" ] && [ -n "$b" ] || { tail -n 5 "$folder/client" "$folder/err" >&2; status=1; break; }
  awk -v a="$a" -v b="$b" 'BEGIN { if (a > 0) print b / a }' >>"$folder/ratios"
  theirs+="$a " ours+="$b "
done
least() { tr ' ' '\n' | grep . | sort -n | head -n 1; }
echo "least half round trip of 8 bytes: ib_write_lat $(least <<<"$theirs") us, rota $(least <<<"$ours") us," \
  "median of ratios $(median <"$folder/ratios")"
exit $status
