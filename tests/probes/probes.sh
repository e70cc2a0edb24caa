#!/usr/bin/env bash
# probes.sh LIBRARY with|without: the notes from which tracers learn of the probes, with the number
# of their arguments; none in a library that was built without.
set -euo pipefail
notes=$(readelf -n -W "$1" 2>/dev/null)
# "provider probe arguments" of each note
found=$(awk '/Provider:/ { provider = $NF } /Name:/ { name = $2 }
             /Arguments:/ { print provider, name, NF - 1 }' <<<"$notes" | sort -u)
[ "$2" = with ] || { [ -z "$found" ] && exit 0; echo "probes without ROTA_HAVE_SDT: $found"; exit 1; }
expected='rota collective_begin 3
rota collective_end 3
rota message_received 2
rota message_sent 2
rota sleep 0'
[ "$found" = "$expected" ] || { diff <(echo "$expected") <(echo "$found"); exit 1; }
# Probes that no tracer enables cost one instruction: no semaphore is looked at.
semaphores=$(grep -o 'Semaphore: 0x[0-9a-f]*' <<<"$notes" | sort -u)
[ "$semaphores" = "Semaphore: 0x0000000000000000" ] || { echo "semaphores: $semaphores"; exit 1; }
