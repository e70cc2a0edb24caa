#!/usr/bin/env bash
# The ground truth of the files here, and of those in $ROTA_TEST_SHARED/topologies where it is set.
#   truth.sh SCRIPT ROTA [COUNT]    SCRIPT is truth.py or perturb.py
set -euo pipefail
here=$(dirname "$0")
script=$1 rota=$2
shift 2
python3 "$here/$script" "$rota" "$here/data" "$@"
if [ -n "${ROTA_TEST_SHARED:-}" ] && [ -f "$ROTA_TEST_SHARED/topologies/expected.json" ]; then
  python3 "$here/$script" "$rota" "$ROTA_TEST_SHARED/topologies" "$@"
fi
