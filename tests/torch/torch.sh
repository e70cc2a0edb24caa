#!/usr/bin/env bash
# torch.sh PYTHON PACKAGES build SOURCE       builds the backend into the folder PACKAGES
# torch.sh PYTHON PACKAGES RANKS TEST...      runs tests of semantics.py on so many ranks
# Exit status 77 where PYTHON has no torch.
set -euo pipefail
python=$1 packages=$2 what=$3
shift 3
"$python" -c 'import torch' 2>/dev/null || { echo "no torch for $python"; exit 77; }
if [ "$what" = build ]; then
  exec "$python" -m pip install -q --no-build-isolation --no-deps --no-index --upgrade \
    --target "$packages" "$1/integrations/torch"
fi
export PYTHONPATH=$packages OMP_NUM_THREADS=1
here=$(cd "$(dirname "$0")" && pwd)
port=$((20000 + $$ % 20000))
log=$(mktemp)
trap 'rm -f "$log"' EXIT
pids=()
for ((r = 0; r < what; r++)); do
  RANK=$r LOCAL_RANK=$r WORLD_SIZE=$what MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    timeout 200 "$python" "$here/semantics.py" "$@" >>"$log" 2>&1 &
  pids+=($!)
done
failed=0
for ((r = 0; r < what; r++)); do
  # The last rank of test_alone_death kills itself.
  status=0
  wait "${pids[r]}" || status=$?
  if [ $status != 0 ] && ! { [ "${1:-}" = test_alone_death ] && [ $status = 137 ] &&
      [ $r = $((what - 1)) ]; }; then
    echo "rank $r ended with $status"
    failed=1
  fi
done
cat "$log"
exit $failed
