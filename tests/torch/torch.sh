#!/usr/bin/env bash
# torch.sh PYTHON PACKAGES build SOURCE                     builds the backend into the folder PACKAGES
# torch.sh PYTHON PACKAGES RANKS MODULES PROGRAM [ARG...]   runs a program on so many ranks
# Exit status 77 where PYTHON has no torch, or not all of MODULES (a list with commas).
set -euo pipefail
python=$1 packages=$2 what=$3
shift 3
needs() {
  "$python" -c "import importlib.util as u, sys
sys.exit(any(u.find_spec(m) is None for m in '$1'.split(',')))" 2>/dev/null ||
    { echo "$python has not all of $1"; exit 77; }
}
needs torch
if [ "$what" = build ]; then
  exec "$python" -m pip install -q --no-build-isolation --no-deps --no-index --upgrade \
    --target "$packages" "$1/integrations/torch"
fi
needs "$1"
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONPATH=$packages OMP_NUM_THREADS=1 ROTA_RECORD_DIR=$scratch/records DS_SKIP_CUDA_CHECK=1
mkdir -m 700 "$ROTA_RECORD_DIR"
port=$((20000 + $$ % 20000))
pids=()
for ((r = 0; r < what; r++)); do
  RANK=$r LOCAL_RANK=$r WORLD_SIZE=$what MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    timeout 280 "$python" "$@" >>"$scratch/log" 2>&1 &
  pids+=($!)
done
failed=0
for ((r = 0; r < what; r++)); do
  # The last rank of test_alone_death kills itself.
  status=0
  wait "${pids[r]}" || status=$?
  if [ $status != 0 ] && ! { [ "${2:-}" = test_alone_death ] && [ $status = 137 ] &&
      [ $r = $((what - 1)) ]; }; then
    echo "rank $r ended with $status"
    failed=1
  fi
done
cat "$scratch/log"
exit $failed
