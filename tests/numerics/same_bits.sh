#!/bin/bash
# same_bits.sh ROTA [RANKS...]: mode reproducible gives one hash per number of ranks, type and size,
# whatever runs the call: transport, threads, algorithm, instruction set, slices, hosts, cuts, profile. The
# control, a ring in mode fast, gives another.
set -u
rota=$1
shift
numbers=${*:-3 4 5 8}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset ROTA_RANK ROTA_SIZE ROTA_ROOT RANK WORLD_SIZE
runs=0

fail() {
  echo "FAILED: $*" >&2
  head -5 "$folder/err" >&2
  exit 1
}

# bench WHAT ARGUMENTS...: leaves "size hash" of all rows in $folder/hashes.
sizes=(-b 40 -e 655360 -f 128)
bench() {
  local what=$1
  shift
  if ! "$@" "${sizes[@]}" -n 1 -w 0 -T 60 --hash >"$folder/out" 2>"$folder/err" </dev/null; then
    fail "n = $n, $type, $what: $*"
  fi
  grep -qx '# Out of bounds values : 0 OK' "$folder/out" || fail "n = $n, $type, $what: wrong values"
  awk '!/^#/ { print $1, $14; if ($15 != "N/A") print $1, $15 }' "$folder/out" |
    sort -u >"$folder/hashes"
  runs=$((runs + 1))
}

reproducible() {
  local what=$1
  shift
  bench "$what" "$@"
  cmp -s "$folder/hashes" "$folder/reference" ||
    fail "n = $n, $type, $what: other bits
$(diff "$folder/reference" "$folder/hashes")"
}

# The algorithms that are refused, in one line.
refused() {
  sed -n 's/^# all_reduce by \([a-z_]*\) is refused: .* does not keep the canonical tree .*/\1/p' \
    "$folder/out" | tr '\n' ' '
}

# hosts HOSTS WHETHER: all algorithms over these hosts; `hierarchical` is refused or not.
hosts() {
  local wanted="ring double_binary_tree "
  [ "$2" = yes ] || wanted+="hierarchical "
  reproducible "hosts $1" "${call[@]}" --hosts "$1"
  reproducible "hosts $1, all algorithms" "${call[@]}" --hosts "$1" --algorithm all
  [ "$(refused)" = "$wanted" ] || fail "n = $n, hosts $1: refused $(refused), expected $wanted"
}

isas=()
for isa in scalar avx2 avx512 neon; do
  ROTA_ISA=$isa "$rota" bench barrier -n 1 -t 1 >/dev/null 2>&1 && isas+=($isa)
done
[ ${#isas[@]} -ge 1 ] || fail "no instruction set"

for n in $numbers; do
  for type in bfloat16 float; do
    call=("$rota" bench all_reduce -d $type --mode reproducible)
    here=("${call[@]}" --ranks "$n")
    bench shm "${here[@]}" --transport shm
    cp "$folder/hashes" "$folder/reference"
    [ "$(wc -l <"$folder/reference")" = 3 ] || fail "n = $n, $type: not one hash per size"

    reproducible tcp "${here[@]}" --transport tcp
    reproducible threads "${call[@]}" -t "$n"
    reproducible "threads, tcp" "${call[@]}" -t "$n" --transport tcp
    reproducible repetitions "${here[@]}" -c 20
    for transport in shm tcp; do
      reproducible "$transport, all algorithms" "${here[@]}" --transport $transport --algorithm all
      [ "$(refused)" = "ring double_binary_tree " ] || fail "n = $n: refused $(refused)"
      [ "$(grep -c '^# run by' "$folder/out")" -ge 6 ] || fail "n = $n: too few algorithms ran"
      reproducible "$transport, three calls" "${here[@]}" --transport $transport --pieces 3
      reproducible "$transport, small slices" env ROTA_SLICE_BYTES=1K "${here[@]}" \
        --transport $transport --algorithm all
      for slice in 20K 1M; do
        reproducible "$transport, slices of $slice" env ROTA_SLICE_BYTES=$slice "${here[@]}" \
          --transport $transport --algorithm halving_doubling
      done
      for isa in "${isas[@]}"; do
        reproducible "$transport, $isa" env ROTA_ISA=$isa "${here[@]}" --transport $transport
      done
    done
    # Another instruction set on each rank.
    reproducible "an instruction set per rank" "$rota" run -n "$n" --no-prefix -- bash -c \
      'isas=('"${isas[*]}"'); export ROTA_ISA=${isas[ROTA_RANK % ${#isas[@]}]}; exec "$@"' - \
      "${call[@]}"
    # Prices that turn the choice round: large messages seem cheap, then rounds do.
    for prices in "9000 9 1 1" "1 900 9000 1"; do
      read -r latency overhead bytes reduced <<<"$prices"
      printf '%s\n' "rota_profile = 1" "$("$rota" info | sed -n 's/^machine: */machine = /p')" \
        "placement = ranks $n hosts 1 crowding 1" \
        "tcp = latency_us $latency overhead_us $overhead us_per_mib $bytes reduce_us_per_mib $reduced" \
        >"$folder/profile"
      reproducible "with a profile" env ROTA_PROFILE="$folder/profile" "${here[@]}" --transport tcp
    done
    reproducible "without a profile" env ROTA_PROFILE=none "${here[@]}" --transport tcp
    case $n in
      3) hosts 2+1 yes && hosts 0,1,0 no ;;
      4) hosts 2+2 yes && hosts 1+3 no && hosts 0,1,1,0 no && hosts 1,0,1,0 no ;;
      5) hosts 3+2 no && hosts 4+1 yes && hosts 1,0,1,0,1 no ;;
      8) hosts 4+4 yes && hosts 0,1,1,0,1,0,0,1 no ;;
    esac
    # The control.
    bench "ring in mode fast" "$rota" bench all_reduce -d $type --mode fast --ranks "$n" \
      --algorithm ring
    while read -r size hash; do
      grep -q "^$size $hash$" "$folder/reference" && fail "n = $n, $type: a ring has the tree's bits"
    done <"$folder/hashes"
  done
done

# C05: 20 jobs.
n=4 type=float
for mode in reproducible equal; do
  for ((i = 0; i < 20; i++)); do
    bench "job $i" "$rota" bench all_reduce -d float --ranks 4 --mode $mode
    [ $i -gt 0 ] || cp "$folder/hashes" "$folder/reference"
    cmp -s "$folder/hashes" "$folder/reference" || fail "C05: job $i in mode $mode has other bits"
  done
done
echo "$runs runs"
