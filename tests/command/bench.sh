#!/bin/bash
# The benchmark's table, JSON and hashes, with processes, threads and a launcher.
. "$(dirname "$0")/check.sh"

# table RANKS: 13 fields in each row, nothing wrong, both lines of the footer.
table() {
  awk '/^#/ { next }
       NF != 13 || ($9 != "0" && $9 != "N/A") || ($13 != "0" && $13 != "N/A") { exit 1 }
       { rows++ } END { exit !rows }' "$folder/out" || fail "table: $(grep -v '^#' "$folder/out")"
  grep -qx '# Out of bounds values : 0 OK' "$folder/out" || fail "footer"
  grep -Eqx '# Avg bus bandwidth    : [0-9.e+-]+' "$folder/out" || fail "average"
  [ "$(grep -c '^#  Rank' "$folder/out")" = "$1" ] || fail "expected $1 ranks"
}
small=(-b 0 -e 4K -f 32 -n 2 -T 60)

for transport in shm tcp; do
  expect 0 "$rota" bench --all "${small[@]}" --ranks 3 --transport $transport
  table 3
  expect 0 "$rota" bench all_reduce reduce_scatter reduce "${small[@]}" -d all -o all --ranks 2 \
    --transport $transport
  table 2
done
expect 0 "$rota" bench all_reduce "${small[@]}" -t 3
table 3
expect 0 "$rota" bench --cores -k 3 -b 2M
grep -Eqx '3 cores +[0-9.]+ GB/s +[0-9.]+ times as fast' "$folder/out" || fail "cores"
expect 0 "$rota" bench all_gather "${small[@]}" --hosts 0,1,0
table 3
expect 0 "$rota" bench broadcast reduce "${small[@]}" -r all --ranks 3
table 3
expect 0 "$rota" bench all_reduce "${small[@]}" --algorithm all --ranks 2
table 2
expect 0 "$rota" run -n 2 --no-prefix -- "$rota" bench all_to_all "${small[@]}"
table 2
expect 0 "$rota" bench all_gatherv reduce_scatterv all_to_allv gatherv scatterv "${small[@]}" -d all \
  -r all --ranks 3
table 3
expect 0 "$rota" bench all_to_allv gatherv "${small[@]}" --algorithm all --ranks 4
table 4
expect 0 "$(dirname "$rota")/alltoallv_perf" "${small[@]}" --ranks 2
table 2
expect 0 "$(dirname "$rota")/all_reduce_perf" "${small[@]}" --ranks 2
table 2

# Messages whose length the receiver does not know, around every limit of a transport.
for transport in shm tcp; do
  expect 0 "$rota" bench send_recv -b 1 -e 2M -f 2 -n 1 -T 60 --ranks 2 --transport $transport
  table 2
done

# Two runs print the same hashes, which are those of both halves.
for run in 1 2; do
  expect 0 "$rota" bench all_reduce -b 4K -e 256K -f 8 -n 1 --hash --ranks 2 -d float
  awk '!/^#/ { if (NF != 15 || $14 != $15) exit 1; print $14 }' "$folder/out" >"$folder/hash$run" ||
    fail "hash columns"
done
[ -s "$folder/hash1" ] && cmp -s "$folder/hash1" "$folder/hash2" || fail "hashes differ"

# JSON: one object per row and nothing else, on the transport that was asked for.
expect 0 "$rota" bench all_reduce -b 8 -e 512 -f 8 -n 2 --json - --ranks 2 --transport tcp
[ "$(wc -l <"$folder/out")" = 3 ] || fail "rows of JSON"
grep -v '^{"peer":"rota",.*"transport":"tcp","op":"all_reduce","ranks":2.*"correct":true' \
  "$folder/out" && fail "form of JSON"
expect 0 "$rota" bench barrier -n 2 --json "$folder/rows" --ranks 2
[ "$(wc -l <"$folder/rows")" = 1 ] || fail "JSON in a file"
exit 0
