# Sourced by the runner of the race (see README.md): adds the peers `rota` and `rota-registered` (the
# same with buffers from rota_mem_alloc), built on first use.
# ROTA_BUILD names the build folder of this project; without it build/release is taken.
ROTA_PEERS_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROTA_BUILD=${ROTA_BUILD:-$ROTA_PEERS_HERE/../../build/release}
PEERS="$PEERS rota rota-registered"

# Compiles the harness ($D/bench_core.c) with our calls when the result is missing or older.
rota_peer_build() {
  local out=$ROTA_BUILD/peers/rota_peer_bench lib=$ROTA_BUILD/lib source
  [ -e "$lib/librota.so" ] || { echo "rota: no librota.so in $lib: build the project, or set ROTA_BUILD" >&2; return 1; }
  mkdir -p "$ROTA_BUILD/peers" || return 1
  for source in "$D/bench_core.c" "$D/bench_core.h" "$ROTA_PEERS_HERE/rota_peer_bench.c" "$ROTA_PEERS_HERE"/../../include/rota/*.h; do
    if [ ! -x "$out" ] || [ "$source" -nt "$out" ]; then
      ${CC:-cc} -O2 -std=gnu11 -I "$D" -I "$ROTA_PEERS_HERE/../../include" -o "$out.part.$$" \
        "$D/bench_core.c" "$ROTA_PEERS_HERE/rota_peer_bench.c" -L "$lib" -lrota -Wl,-rpath,"$lib" \
        && mv "$out.part.$$" "$out"
      return
    fi
  done
}

rota_peer_launch() { # transport, ranks, arguments of the program
  rota_peer_build || return 1
  local alone=; over "$2" && alone=--no-pin
  $W env -u ROTA_BUILD ROTA_TRANSPORT="$1" python3 "$D/spawn.py" -n "$2" $alone --timeout "$LIM" -- "$ROTA_BUILD/peers/rota_peer_bench" "${@:3}"
}
launch_rota() { rota_peer_launch "$1" "$2"; }
launch_rota-registered() { rota_peer_launch "$1" "$2" registered; }
