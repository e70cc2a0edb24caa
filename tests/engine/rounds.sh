#!/usr/bin/env bash
# rounds.sh ROTA ROUNDS core|quota: 1,000 rounds of 8 ranks that have too little of the processors.
#   core     all on one core: at most 10 s over shm and over tcp
#   quota    a control group with 20 % of a processor: at most 60 s each; status 77 (skipped) where
#            none can be made
set -euo pipefail
rota=$1 rounds=$2 part=$3
scratch=$(mktemp -d)
group=
clean() {
  rm -rf "$scratch"
  [ -z "$group" ] || rmdir "$group" 2>/dev/null || true
}
trap clean EXIT
unset ROTA_RANK ROTA_SIZE ROTA_ROOT RANK WORLD_SIZE
ranks=8 number=1000

# take TRANSPORT SECONDS COMMAND...: runs the job under a command.
take() {
  local transport=$1 most=$2 slowest
  shift 2
  ROTA_TRANSPORT=$transport ROTA_TIMEOUT_MS=$((most * 2000)) timeout "$((most * 2))" \
    "$@" "$rota" run -n $ranks -- "$rounds" $number >"$scratch/out" 2>"$scratch/errors" ||
    { echo "$transport: status $?"; tail -n 5 "$scratch/errors"; exit 1; }
  [ "$(grep -c "of $ranks: [0-9]* ms" "$scratch/out")" -eq $ranks ] ||
    { echo "$transport: not all ranks reported"; exit 1; }
  slowest=$(sed -n 's/.*: \([0-9]*\) ms$/\1/p' "$scratch/out" | sort -n | tail -n 1)
  echo "$part, $transport: $slowest ms, at most $((most * 1000))"
  [ "$slowest" -le $((most * 1000)) ] || exit 1
}

# make_group: a control group of either version with the quota; its name in $group.
make_group() {
  local root
  for root in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
    group=$root/rota-rounds-$$
    mkdir "$group" 2>/dev/null || continue
    if [ -e "$group/cpu.cfs_quota_us" ]; then
      echo 100000 >"$group/cpu.cfs_period_us" && echo 20000 >"$group/cpu.cfs_quota_us" && return 0
    elif [ -e "$group/cpu.max" ]; then
      echo "20000 100000" >"$group/cpu.max" && return 0
    fi
    rmdir "$group"
  done 2>/dev/null
  group=
  return 1
}

case $part in
  core)
    core=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    for transport in shm tcp; do
      take $transport 10 taskset -c "$core"
    done
    ;;
  quota)
    make_group || { echo "skipped: no control group can be made"; exit 77; }
    inside='echo $$ >"$0/cgroup.procs" && exec "$@"'
    for transport in shm tcp; do
      take $transport 60 bash -c "$inside" "$group"
    done
    ;;
  *) echo "rounds.sh: no part \"$part\""; exit 2 ;;
esac
