#!/bin/bash
# launchers.sh LAUNCHER ROTA EXAMPLES REPEAT: data_parallel on 4 ranks under a launcher gives the
# weights that it gives under rota run; one process joins several jobs; a rank that fails ends the
# launcher with a failure. Launchers are looked for in $ROTA_TEST_PEERS; skipped (77) without it.
set -u
launcher=$1 rota=$2 examples=$3 repeat=$4
peers=${ROTA_TEST_PEERS:-/opt/peers}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for variable in $(compgen -v | grep -E '^(ROTA|PMI|PMIX|OMPI|SLURM|TORCHELASTIC)_') RANK WORLD_SIZE \
  MASTER_ADDR MASTER_PORT; do
  unset "$variable"
done
export ROTA_INIT_TIMEOUT_MS=60000 OMP_NUM_THREADS=1
# libpmix keeps some of its memory to the end.
echo 'leak:libpmix' >"$folder/suppressions"
export LSAN_OPTIONS=suppressions=$folder/suppressions:print_suppressions=0

fail() {
  echo "FAILED: $launcher: $*" >&2
  tail -20 "$folder/err" >&2
  exit 1
}

skip() {
  echo "skipped: $1 was not found"
  exit 77
}

# By hand: what srun would set on one host.
slurm() {
  local n=$1 r pids=() status=0
  shift
  export SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$n SLURM_STEP_NODELIST=localhost,x
  for ((r = 0; r < n; r++)); do
    SLURM_PROCID=$r "$@" &
    pids+=($!)
  done
  for r in "${pids[@]}"; do
    wait "$r" || status=1
  done
  return $status
}

# start N PROGRAM...
start() {
  local n=$1
  shift
  case $launcher in
    mpich) "$peers/mpich/bin/mpiexec" -n "$n" "$@" ;;
    mpich_port) "$peers/mpich/bin/mpiexec" -pmi-port -n "$n" "$@" ;;
    impi) I_MPI_ROOT=$peers/impi "$peers/impi/bin/mpiexec.hydra" -n "$n" "$@" ;;
    ompi) "$peers/ompi/bin/mpiexec" --allow-run-as-root --oversubscribe -n "$n" "$@" ;;
    ompi_alone)
      # As if libpmix were not to be found.
      "$peers/ompi/bin/mpiexec" --allow-run-as-root --oversubscribe -n "$n" \
        env -u PMIX_PREFIX -u OPAL_PREFIX -u LD_LIBRARY_PATH "$@"
      ;;
    torchrun) "$torchrun" --standalone --no-python --nproc-per-node "$n" "$@" ;;
    slurm) slurm "$n" "$@" ;;
    *) fail "is no launcher" ;;
  esac
}

case $launcher in
  mpich*) needed=$peers/mpich/bin/mpiexec ;;
  impi) needed=$peers/impi/bin/mpiexec.hydra ;;
  ompi*) needed=$peers/ompi/bin/mpiexec ;;
  torchrun)
    torchrun=$peers/torch/bin/torchrun
    [ -x "$torchrun" ] || torchrun=$(command -v torchrun) || skip torchrun
    needed=$torchrun
    ;;
  slurm) needed=/bin/sh ;;
esac
[ -x "$needed" ] || skip "$needed"

# run FILE COMMAND...: output in the file, status is the command's.
run() {
  local out=$1
  shift
  "$@" >"$out" 2>"$folder/err" </dev/null
}

run "$folder/ours" "$rota" run -n 4 -- "$examples/data_parallel" || fail "rota run failed"
run "$folder/theirs" start 4 "$examples/data_parallel" || fail "data_parallel failed"
ours=$(grep -o 'weights: .* all 4 ranks' "$folder/ours")
theirs=$(grep -o 'weights: .* all 4 ranks' "$folder/theirs")
[ -n "$ours" ] || fail "no weights under rota run"
[ "$ours" = "$theirs" ] || fail "'$theirs', but under rota run '$ours'"

run "$folder/jobs" start 3 "$repeat" || fail "repeat failed"
[ "$(grep -c 'job [012] of 3 ranks' "$folder/jobs")" = 3 ] || fail "not three jobs of three ranks"
run "$folder/one" start 1 "$repeat" || fail "repeat on one rank failed"

if run "$folder/failing" start 2 sh -c '"$0" && exit 3' "$repeat"; then
  fail "ended well although its ranks did not"
fi
echo "$launcher: $theirs"
