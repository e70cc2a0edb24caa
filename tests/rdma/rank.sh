#!/usr/bin/env bash
# rank.sh any|turns|halves COMMAND...: runs a rank of a job on one of the devices rxe0 and rxe1: by
# turns, or the first two ranks on the one and the next two on the other.
case $1 in
  turns) export ROTA_RDMA_DEVICE=rxe$((ROTA_RANK % 2)) ;;
  halves) export ROTA_RDMA_DEVICE=rxe$((ROTA_RANK / 2)) ;;
esac
shift
exec "$@"
