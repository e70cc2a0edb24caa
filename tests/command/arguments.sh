#!/bin/bash
# Wrong arguments: one line that names the option, status 2, never a crash.
. "$(dirname "$0")/check.sh"

refused "'nope'" "$rota" nope
for command in run bench verify explain info; do
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

# Studies and pictures.
for study in --selection --guidelines --overlap "--calibrate $folder/profile"; do
  refused "--ranks" "$rota" bench $study --ranks x
  refused "--tolerance" "$rota" bench $study --tolerance=-100
  refused "--algorithm" "$rota" bench $study --algorithm ring
  refused "'nope'" "$rota" bench $study nope
done
refused "send_recv" "$rota" bench --selection send_recv
refused "all_gatherv" "$rota" bench --overlap all_gatherv
refused "'all_reduce'" "$rota" bench --guidelines all_reduce
refused "'all_reduce'" "$rota" bench --calibrate "$folder/profile" all_reduce
refused "--calibrate" "$rota" bench --calibrate
refused "--calibrate" "$rota" bench --calibrate ''
refused "--overlay" "$rota" bench all_reduce --overlay /nonexistent/file
refused "gnuplot" env PATH=/nonexistent "$rota" bench all_reduce --plot "$folder/plot.svg"
for option in --init --overheads; do
  expect 0 "$rota" bench $option --help
  grep -q "Usage: rota bench $option" "$folder/out" || fail "help of $option"
  refused "'nope'" "$rota" bench $option nope
done
for value in '' x 0 1 257 99999999999999999999; do
  refused "--ranks" "$rota" bench --init --ranks "$value"
  refused "--ranks" "$rota" explain all_reduce 8 --ranks "$value"
done
refused "OPERATION" "$rota" explain
refused "BYTES" "$rota" explain all_reduce
for value in '' x 1.5 99999999999999999999 '%s%n'; do
  refused "BYTES" "$rota" explain all_reduce "$value"
  refused "--dtype" "$rota" explain all_reduce 8 --dtype "$value"
  refused "--format" "$rota" explain all_reduce 8 --format "$value"
  refused "--mode" "$rota" explain all_reduce 8 --mode "${value:- }"
done
refused "'nope'" "$rota" explain nope 8
refused "'send'" "$rota" explain send 8
refused "'8'" "$rota" explain all_reduce 8 8
refused "--hosts" "$rota" explain all_reduce 8 --hosts 2+2 --ranks 3
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
