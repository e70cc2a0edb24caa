#!/usr/bin/env bash
# `rota topo` of this machine: what it says of usable cores follows the affinity mask and the cpuset
# (C87), and the mask of nobody changes.
set -euo pipefail
rota=$1
# hwloc's plug-in for PCI is unloaded with memory of libpciaccess still allocated, which a leak
# checker reports.
export HWLOC_COMPONENTS=-pci
last=$(($(nproc --all) - 1))
for cpu in 0 "$last"; do
  taskset -c "$cpu" true 2>/dev/null || continue
  taskset -c "$cpu" "$rota" topo >out.probe
  grep -q 'usable: 1 core, 1 PU' out.probe || { echo "C87: with one CPU:"; cat out.probe; exit 1; }
  taskset -c "$cpu" "$rota" topo --format json | python3 -c '
import json, sys
machine = json.load(sys.stdin)["machine"]
assert machine["usable_cores"] == 1, machine
assert machine["source"] == "this machine", machine'
done
if command -v strace >/dev/null && strace -f -e trace=sched_setaffinity -o trace.probe "$rota" topo >/dev/null 2>&1; then
  if grep -q sched_setaffinity trace.probe; then
    echo "C87: the probe changes an affinity mask:"
    cat trace.probe
    exit 1
  fi
fi
# The same in a cpuset of its own, where one can be made: cgroups of version 1, or 2 with cpusets.
for root in /sys/fs/cgroup/cpuset /sys/fs/cgroup; do
  group=$root/rota-probe-$$
  [ -f "$root/cgroup.procs" ] || continue
  mkdir "$group" 2>/dev/null || continue
  trap 'rmdir "$group"' EXIT
  if { echo "$last" >"$group/cpuset.cpus" && { [ ! -f "$root/cpuset.mems" ] ||
    cat "$root/cpuset.mems" >"$group/cpuset.mems"; }; } 2>/dev/null &&
    bash -c 'echo $$ >"$0/cgroup.procs"' "$group" 2>/dev/null; then
    bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$rota" topo >out.probe
    grep -q 'usable: 1 core, 1 PU' out.probe || { echo "C87: in a cpuset:"; cat out.probe; exit 1; }
    in_cpuset=1
    break
  fi
  rmdir "$group"
  trap - EXIT
done
[ -n "${in_cpuset:-}" ] || echo "no cpuset can be made here: that part is skipped"
rm -f out.probe trace.probe
