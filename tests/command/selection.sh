#!/bin/bash
# rota explain, profiles and rules, and the studies of rota bench.
. "$(dirname "$0")/check.sh"
unset ROTA_PROFILE ROTA_RULES ROTA_ALGORITHM ROTA_TRANSPORT

# chosen NAME ARGUMENTS...: what rota explain says runs the call.
chosen() {
  local name=$1
  shift
  expect 0 "$rota" explain "$@"
  grep -q "^chosen: $name: " "$folder/out" || fail "expected $name: $(tail -1 "$folder/out")"
}

# -- explain: text and JSON say the same, and what it says is what runs.
expect 0 "$rota" explain all_reduce 64K --ranks 3 --transport tcp
[ "$(grep -c '^chosen: ' "$folder/out")" = 1 ] || fail "no choice: $(cat "$folder/out")"
name=$(sed -n 's/^chosen: \([a-z_]*\): .*/\1/p' "$folder/out")
# The least price of the table is that of the choice.
awk '/candidate$/ { table = 1; next } /^$/ { table = 0 } table && $1 != "-" {
       if (!least || $1 < least) least = $1; if (!first) first = $1 }
     END { exit !(first > 0 && first == least) }' "$folder/out" || fail "not the lowest price"
expect 0 "$rota" explain all_reduce 64K --ranks 3 --transport tcp --format json
python3 - "$folder/out" "$name" <<'EOF' || fail "JSON of explain"
import json, sys
answer = json.load(open(sys.argv[1]))
chosen = [c for c in answer["candidates"] if c["chosen"]]
assert [c["name"] for c in chosen] == [sys.argv[2]], chosen
able = [c for c in answer["candidates"] if c["able"]]
assert chosen[0]["price_us"] == min(c["price_us"] for c in able) > 0
ring = [c for c in able if c["name"] == "ring"][0]
# 2 (n - 1) rounds; each rank sends and receives 2 (n - 1) / n of the data, and reduces n - 1 times
# two pieces. All ranks do the same, and pay for those on their core.
crowding = answer["crowding"]
assert answer["ranks"] == 3 and answer["hosts"] == 1 and crowding >= 1
assert ring["rounds"] == 4 and abs(ring["messages"]["tcp"] - 8 * crowding) < 1e-3, ring
assert abs(ring["bytes"]["tcp"] - 2 * 4 / 3 * 65536 * crowding) < 100, ring
assert abs(ring["reduced_bytes"] - 4 / 3 * 65536 * crowding) < 100, ring
EOF
expect 0 "$rota" bench all_reduce -b 64K -e 64K -n 1 --ranks 3 --transport tcp --json -
grep -q "\"algorithm\":\"$name\"" "$folder/out" || fail "another one ran than $name"
chosen shm-inline all_reduce 8 --ranks 2
chosen shm-barrier barrier --ranks 2
ROTA_LEVELS=2 expect 0 "$rota" explain all_reduce 1M --ranks 4 --transport shm
grep -q 'chosen: shm-two-shot-by-2: .*by levels: blocks of 2 ranks' "$folder/out" || fail "levels of explain"
expect 0 "$rota" explain all_reduce 1M --ranks 4 --hosts 2+2
grep -q "4 ranks on 2 hosts" "$folder/out" || fail "hosts"
expect 0 "$rota" explain all_reduce 1M --ranks 3 --transport tcp --mode reproducible
grep -q "^ *- .* ring: does not keep the canonical tree" "$folder/out" || fail "ring keeps no tree"
expect 1 "$rota" explain all_reduce 8 --ranks 2 --transport nope

# -- profiles: written, found, followed, and compared.
profile=$folder/profile
for transport in tcp shm; do
  expect 0 "$rota" bench --calibrate "$profile" --ranks 2 --transport $transport
  ms=$(sed -n 's/^# probe: \([0-9]*\) ms.*/\1/p' "$folder/out")
  [ -n "$ms" ] && [ "$ms" -le "${PROBE_MS:-1000}" ] || fail "the probe took $ms ms"
done
[ "$(grep -c '^placement = ' "$profile")" = 1 ] || fail "one placement: $(cat "$profile")"
for link in tcp shm native; do
  grep -Eq "^$link = latency_us [0-9.]+ overhead_us [0-9.]+ us_per_mib [0-9.]+ reduce_us" "$profile" ||
    fail "no $link in $(cat "$profile")"
done
expect 0 env ROTA_PROFILE="$profile" "$rota" info
grep -Eq "^profile: +[0-9a-f]{16} \($profile, placements: 1\)" "$folder/out" || fail "fingerprint"
expect 0 "$rota" info
grep -Eq "^profile: +none" "$folder/out" || fail "no profile"
expect 0 env ROTA_PROFILE="$profile" "$rota" explain broadcast 64K --ranks 2 --transport tcp
grep -q "^prices measured with 2 ranks: profile [0-9a-f]" "$folder/out" || fail "not measured"
expect 0 env ROTA_PROFILE="$profile" "$rota" bench all_reduce -e 4K -n 2 --ranks 2

# Prices decide: where rounds cost most, the algorithm with fewest; where messages and bytes do, not.
priced() {
  printf '%s\n' "$(sed 2q "$profile")" "placement = ranks 5 hosts 1 crowding 1" "tcp = $1" >"$folder/made"
}
priced "latency_us 90000 overhead_us 0.1 us_per_mib 1 reduce_us_per_mib 1"
chosen direct broadcast 64K --ranks 5 --transport tcp 2>/dev/null
export ROTA_PROFILE=$folder/made
chosen direct all_reduce 64K --ranks 5 --transport tcp
priced "latency_us 0 overhead_us 0.1 us_per_mib 90000 reduce_us_per_mib 1"
expect 0 "$rota" explain all_reduce 1M --ranks 5 --transport tcp
grep -q '^chosen: direct: ' "$folder/out" && fail "direct sends most"
unset ROTA_PROFILE

# What is no profile of this machine is refused with a sentence, and never crashes.
refuse_profile() {
  local word=$1
  expect 1 env ROTA_PROFILE="$2" "$rota" info
  grep -q "^profile: *REFUSED: .*$word" "$folder/out" || fail "no word of $word: $(cat "$folder/out")"
  expect 1 env ROTA_PROFILE="$2" "$rota" bench barrier -t 1 -n 1
  grep -q "$word" "$folder/err" || fail "no word of $word at the start of a job"
}
bad=$folder/bad
made() { sed "$1" "$profile" >"$bad" && refuse_profile "$2" "$bad"; }
made '1s/1/2/' "rota_profile = 1"
made '1s/1/0/' "rota_profile = 1"
made '1d' "rota_profile = 1"
made '2s/cores/cores of another/' "not measured on this machine"
made '2d' "not measured on this machine"
made '3s/ranks 2/ranks 0/' "bad:3"
made '3s/crowding.*/crowding 3/' "bad:3"
made '3s/hosts 1/hosts 9/' "bad:3"
made '3s/placement/placemen/' "bad:3"
made '4s/=.*/= latency_us nan overhead_us 1 us_per_mib 1 reduce_us_per_mib 1/' "bad:4"
made '4s/=.*/= latency_us -1 overhead_us 1 us_per_mib 1 reduce_us_per_mib 1/' "bad:4"
made '4s/=.*/= latency_us 1e5 overhead_us 1 us_per_mib 1 reduce_us_per_mib 1/' "bad:4"
made '4s/=.*/= latency_us 99999999999 overhead_us 1 us_per_mib 1 reduce_us_per_mib 1/' "bad:4"
made '4s/=.*/= latency_us 1/' "bad:4"
made '4s/^[a-z]*/carrier_pigeon/' "bad:4"
made '3,$d' "no placement"
refuse_profile "No such file" "$folder/nowhere"
refuse_profile "regular" /dev/zero
refuse_profile "regular" "$folder"
: >"$bad"
refuse_profile "no placement" "$bad"
head -c 2000000 /dev/zero >"$bad"
refuse_profile "1 MiB" "$bad"
RANDOM=7
size=$(stat -c %s "$profile")
for ((i = 0; i < 60; i++)); do
  cp "$profile" "$bad"
  printf "\\x$(printf %02x $((RANDOM % 256)))" |
    dd of="$bad" bs=1 seek=$((RANDOM % size)) conv=notrunc status=none
  [ $((i % 3)) = 0 ] && truncate -s $((RANDOM % size)) "$bad"
  status=0
  env ROTA_PROFILE="$bad" "$rota" info >"$folder/out" 2>"$folder/err" || status=$?
  [ $status -le 1 ] || fail "status $status with a damaged profile: $(cat "$bad")"
done
# Ranks with different profiles do not meet.
sed 's/^\(tcp = latency_us \)/\11/' "$profile" >"$folder/0"
cp "$profile" "$folder/1"
expect 1 "$rota" run -n 2 --no-prefix -- \
  bash -c "ROTA_PROFILE=$folder/\$ROTA_RANK exec $rota bench barrier -n 1"
grep -q "ROTA_PROFILE" "$folder/err" || fail "the difference is not named"
# The same content under another name is no difference.
cp "$profile" "$folder/0"
expect 0 "$rota" run -n 2 --no-prefix -- \
  bash -c "ROTA_PROFILE=$folder/\$ROTA_RANK exec $rota bench barrier -n 1"

# -- rules.
rules=$folder/rules
cat >"$rules" <<'EOF'
# OPERATION  SIZES    RANKS = ALGORITHM
all_reduce   ..1K     *     = auto
all_reduce   1K..64K  2..4  = ring
all_reduce   1M..     *     = double_binary_tree
EOF
export ROTA_RULES=$rules
chosen ring all_reduce 4K --ranks 3
chosen ring all_reduce 64K --ranks 3 --transport tcp
chosen shm-inline all_reduce 8 --ranks 3
chosen double_binary_tree all_reduce 1M --ranks 3
expect 0 "$rota" bench all_reduce -b 4K -e 4K -n 1 --ranks 3 --json -
grep -q '"algorithm":"ring".*"correct":true' "$folder/out" || fail "the rule was not followed"
expect 0 "$rota" bench all_reduce -b 128K -e 128K -n 1 --ranks 3 --json -
grep -q '"algorithm":"shm-' "$folder/out" || fail "a rule that does not fit was followed"
expect 1 "$rota" bench all_reduce -b 4K -e 4K -n 1 --ranks 3 --mode reproducible
grep -q "rules:3 (ROTA_RULES): algorithm ring does not keep" "$folder/err" || fail "the mode"
refuse_rule() {
  printf '%s\n' "$1" >"$rules"
  expect 1 "$rota" bench barrier -n 1 --ranks 3
  grep -q "rules:1.*$2" "$folder/err" || fail "$1: no word of $2"
}
refuse_rule "all_reduce * *" "NAME = VALUE"
refuse_rule "all_reduce * = ring" "OPERATION SIZES RANKS"
refuse_rule "nope * * = ring" "no such operation"
refuse_rule "send * * = ring" "no such operation"
refuse_rule "all_reduce x * = ring" "sizes"
refuse_rule "all_reduce 4K..1K * = ring" "sizes"
refuse_rule "all_reduce .. * = ring" "sizes"
refuse_rule "all_reduce * 1..x = ring" "ranks"
refuse_rule "all_reduce 99999999999999999999 * = ring" "sizes"
refuse_rule "all_reduce * * = nope" "no such algorithm"
refuse_rule "all_to_all * * = ring" "cannot do the operation"
refuse_rule "$(printf 'all_reduce\x01 * * = ring')" "no such operation"
unset ROTA_RULES

# -- the studies, in short.
expect 0 "$rota" bench --selection all_reduce broadcast barrier -b 8 -e 4K -f 512 --ranks 2 \
  --transport tcp --tolerance 100000 --json "$folder/cells"
grep -Eq '^# regret: geometric mean [0-9.]+%, worst [0-9.]+%, beyond 100000%: 0 of 5 cells' \
  "$folder/out" || fail "regret: $(tail -1 "$folder/out")"
[ "$(grep -c '^{"study":"selection",.*"regret":' "$folder/cells")" = 5 ] || fail "JSON of cells"
expect 0 "$rota" bench --guidelines -b 1K -e 1K --ranks 2 --tolerance 100000
grep -q '^# guidelines: 0 of 13 broken' "$folder/out" || fail "guidelines"
expect 1 "$rota" bench --guidelines -b 1K -e 1K --ranks 2 --tolerance=-99
expect 0 "$rota" bench --overlap all_reduce -b 256K -e 256K --ranks 2
awk '!/^#/ { if (NF != 9 || $3 <= 0 || $9 <= 0) exit 1; n++ } END { exit n != 1 }' "$folder/out" ||
  fail "overlap: $(cat "$folder/out")"
expect 0 "$rota" bench --init --ranks 4
awk '!/^#/ { if (NF != 9 || $2 <= 0 || $5 <= 0 || $9 <= 0) exit 1; n++ } END { exit n != 2 }' \
  "$folder/out" || fail "init: $(cat "$folder/out")"
if command -v gnuplot >/dev/null; then
  expect 0 "$rota" bench all_reduce all_gather -e 4K -n 2 --ranks 2 --json "$folder/own"
  sed 's/"peer":"rota"/"peer":"Another\\"; system(1)"/' "$folder/own" >"$folder/others"
  echo "no json" >>"$folder/others"
  expect 0 "$rota" bench all_reduce all_gather -e 4K -n 2 --ranks 2 --plot "$folder/plot.svg" \
    --overlay "$folder/others"
  for word in '<svg' all_reduce all_gather 'bus bandwidth' floor Another; do
    grep -q -- "$word" "$folder/plot.svg" || fail "no $word in the picture"
  done
  python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$folder/plot.svg" || fail "SVG"
fi
exit 0
