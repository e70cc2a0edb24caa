#!/bin/bash
# rota run with real ranks: examples, a rank that dies, results that repeat.
. "$(dirname "$0")/check.sh"

expect 0 "$rota" run -n 3 "$examples/hello"
for r in 0 1 2; do
  grep -qx "\[$r\] hello from rank $r of 3" "$folder/out" || fail "hello of rank $r"
done
expect 0 "$rota" run -n 2 --timeout 60 "$examples/ping_pong"
expect 0 "$rota" run -n 2 --timeout 60 "$examples/overlap"
expect 2 "$rota" run -n 1 "$examples/ping_pong"

# Groups along four cuts: values are checked by the ranks, the tables by their lines.
expect 0 "$rota" run -n 8 --timeout 60 "$examples/groups"
[ "$(grep -c 'group of [24]: [0-9]* bytes, all_reduce by ' "$folder/out")" = 4 ] || fail "groups: memory"
[ "$(grep -cE '^\[0\] rank [0-7] ( *[0-9]+\.[0-9]){8}$' "$folder/out")" = 8 ] || fail "groups: waits"
expect 2 "$rota" run -n 7 "$examples/groups"

for n in 1 2 3; do
  for repetition in 1 2; do
    expect 0 "$rota" run -n $n --timeout 120 "$examples/data_parallel"
    grep 'weights' "$folder/out" >"$folder/weights$repetition" || fail "no hash"
  done
  cmp -s "$folder/weights1" "$folder/weights2" || fail "weights of $n ranks do not repeat"
done

# Binding, on a machine of hwloc's: a node per CPU. hwloc's plug-in for PCI looks like a leak.
refused 'cores, numa or none' "$rota" run -n 2 --bind=sockets true
allowed() { grep -o '\[[01]\] Cpus_allowed_list:.*' "$folder/out" | tr -d '[:blank:]' | sort | tr '\n' ' '; }
if [ "$(taskset -pc $$ | sed 's/.*: //')" = 0,1 ]; then
  for how in --bind --bind=cores --bind=numa; do
    HWLOC_SYNTHETIC='numa:2 core:1 pu:1' expect 0 "$rota" run -n 2 $how cat /proc/self/status
    [ "$(allowed)" = '[0]Cpus_allowed_list:0 [1]Cpus_allowed_list:1 ' ] || fail "$how: $(allowed)"
  done
  HWLOC_SYNTHETIC='numa:1 core:2 pu:1' expect 0 "$rota" run -n 2 --bind=numa cat /proc/self/status
  [ "$(allowed)" = '[0]Cpus_allowed_list:0-1 [1]Cpus_allowed_list:0-1 ' ] || fail "numa: $(allowed)"
  HWLOC_SYNTHETIC='numa:2 core:1 pu:1' expect 0 "$rota" run -n 2 --bind=none cat /proc/self/status
  [ "$(allowed)" = '[0]Cpus_allowed_list:0-1 [1]Cpus_allowed_list:0-1 ' ] || fail "none: $(allowed)"
fi
HWLOC_COMPONENTS=-pci HWLOC_SYNTHETIC='no such machine' expect 0 "$rota" run -n 2 --bind true
HWLOC_COMPONENTS=-pci expect 0 "$rota" run -n 2 --bind "$examples/hello"

# A rank that is killed in the middle of a job ends the job with its status.
expect 137 "$rota" run -n 2 --timeout 60 sh -c \
  '[ $ROTA_RANK = 1 ] && { sleep 0.3; kill -KILL $$; }; exec "$0" 100' sleep
# With --keep-going the others go on, and their status counts.
expect 0 "$rota" run -n 3 --keep-going --timeout 60 sh -c \
  '[ $ROTA_RANK = 1 ] && kill -KILL $$; sleep 0.3; echo "rank $ROTA_RANK went on"'
[ "$(grep -c 'went on' "$folder/out")" = 2 ] || fail "--keep-going: who went on"
expect 3 "$rota" run -n 2 --keep-going --timeout 60 sh -c \
  '[ $ROTA_RANK = 1 ] && kill -KILL $$; sleep 0.3; exit 3'
expect 137 "$rota" run -n 2 --keep-going --timeout 60 sh -c 'kill -KILL $$'
exit 0
