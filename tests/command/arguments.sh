#!/bin/bash
# Wrong arguments: one line that names the option, status 2, never a crash.
. "$(dirname "$0")/check.sh"

refused "'nope'" "$rota" nope
for command in run bench verify info; do
  expect 0 "$rota" "$command" --help
  grep -q "Usage: rota $command" "$folder/out" || fail "help of $command"
  refused "--nope" "$rota" "$command" --nope
done
expect 0 "$rota" --version
grep -Eqx 'rota [0-9]+\.[0-9]+\.[0-9]+' "$folder/out" || fail "version"
expect 0 "$rota" info
grep -q '^usable cores: *[0-9]' "$folder/out" || fail "info"
expect 0 "$rota" info --settings
grep -qx 'ROTA_TIMEOUT_MS' "$folder/out" || fail "settings"
expect 1 env ROTA_TIMEOUT_MS=x "$rota" info --settings
expect 0 env ROTA_JOB_KEY=0123456789abcdefSECRET "$rota" info --settings
grep -q SECRET "$folder/out" && fail "the key is shown"

refused "OPERATION" "$rota" bench
refused "'nope'" "$rota" bench nope
for option in -b -e -i -f -n -w -c -a -t -T --ranks --hosts -d -o -r --transport --algorithm; do
  long=$(printf '%5000s' '' | tr ' ' A)
  for value in '' ' ' x -1 1.5 0x 99999999999999999999 $'\n' $'\xff\xfe' '%s%n' "$long"; do
    # -T is --timeout; all others are named as they were given.
    name=$option
    [ "$option" = -T ] && name=--timeout
    refused "$name" "$rota" bench all_reduce "$option" "$value"
  done
done
refused "-k" "$rota" bench --cores -k 1
refused "-b" "$rota" bench --cores -b 3
refused "'x'" "$rota" bench --cores x
refused "-b" "$rota" bench all_reduce -b 2K -e 1K
refused "--ranks" "$rota" bench all_reduce --hosts 2+2 --ranks 3
refused "-r" "$rota" bench broadcast -r 2 --ranks 2
refused "--json" "$rota" bench all_reduce --json /nonexistent/file
refused "--algorithm" "$rota" bench all_to_all --algorithm ring --ranks 2

refused "-n" "$rota" run true
refused "PROGRAM" "$rota" run -n 2
refused "-n" "$rota" run -n 0 true
refused "--hosts" "$rota" run --hosts 1,x true
refused "-n" "$rota" verify ring
refused "-n" "$rota" verify ring -n 4..2
refused "--kind" "$rota" verify ring -n 2 --kind nope
refused "--root" "$rota" verify ring -n 2 --root 2
refused "--print" "$rota" verify ring -n 2 --print text
refused "regular" "$rota" verify /dev -n 2
exit 0
