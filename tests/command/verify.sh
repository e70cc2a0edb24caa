#!/bin/bash
# rota verify: algorithms, files as text and JSON, refutations.
. "$(dirname "$0")/check.sh"

expect 0 "$rota" verify --all -n 1..9
grep -q ': all proven$' "$folder/out" || fail "total"
grep -Eq '^direct +all_reduce .*canonical tree, ascending' "$folder/out" || fail "direct's tree"
grep -Eq '^direct +all_reduce .*fast: 1 roundings' "$folder/out" || fail "direct's rounding"
grep -Eq '^ring +all_reduce .*other trees, .*fast: 8 roundings' "$folder/out" || fail "ring's roundings"
for format in text json; do
  expect 0 "$rota" verify ring -n 4 --kind all_reduce --print $format
  cp "$folder/out" "$folder/schedule"
  expect 0 "$rota" verify "$folder/schedule"
  grep -q 'proven' "$folder/out" || fail "proof of a file"
  # A schedule with its last line cut off is refused as a form or refuted; it is never proven.
  head -c $(($(wc -c <"$folder/schedule") * 3 / 4)) "$folder/schedule" >"$folder/cut"
  expect 1 "$rota" verify "$folder/cut"
done
for file in "$(dirname "$0")"/../schedule/data/*; do
  expect 0 "$rota" verify "$file"
  grep -q 'proven' "$folder/out" || fail "proof of $file"
  expect 0 "$rota" verify "$file" --print text
done
head -c 4096 /dev/urandom >"$folder/noise"
expect 1 "$rota" verify "$folder/noise"
: >"$folder/empty"
expect 1 "$rota" verify "$folder/empty"
exit 0
