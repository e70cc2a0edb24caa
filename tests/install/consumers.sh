#!/usr/bin/env bash
# Three programs find the installed library: C by pkg-config, shared and static, and C++17 by
# find_package, shared and static. Each runs as two ranks under the installed command.
. "$(dirname "$0")/installation.sh"
consumer=$SOURCE/tests/install/consumer

prefix=$SCRATCH/prefix
install_to "$prefix"
libraries=$(library_folder "$prefix")
export LD_LIBRARY_PATH=$libraries

# run PROGRAM shared|static
run() {
  local needed
  needed=$(readelf -d "$1" | grep -c 'NEEDED.*librota' || true)
  [ "$needed" = "$([ "$2" = shared ] && echo 1 || echo 0)" ] || fail "$1 is not linked $2"
  "$prefix/bin/rota" run -n 2 --timeout 60 -- "$1" >"$SCRATCH/output" 2>&1 ||
    { cat "$SCRATCH/output"; fail "$1"; }
  [ "$(sort "$SCRATCH/output")" = "$(printf '[%d] sum 3 of 2 ranks\n' 0 1)" ] ||
    { cat "$SCRATCH/output"; fail "$1 printed this"; }
}

strict=(-Wall -Wextra -pedantic -Werror)
export PKG_CONFIG_PATH=$libraries/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs rota)"
"$CC" -std=c11 "${strict[@]}" "$consumer/sum.c" -o "$SCRATCH/c-shared" "${flags[@]}"
run "$SCRATCH/c-shared" shared

read -ra flags <<<"$(pkg-config --static --cflags --libs rota)"
"$CC" -std=c11 "${strict[@]}" "$consumer/sum.c" -o "$SCRATCH/c-static" \
  "${flags[@]/#-lrota/-l:librota.a}"
run "$SCRATCH/c-static" static
[ "$(pkg-config --modversion rota)" = "$("$prefix/bin/rota" --version | sed 's/^rota //')" ] ||
  fail "rota.pc has another version than the library"

cmake -S "$consumer" -B "$SCRATCH/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$CXX" \
  >"$SCRATCH/log" 2>&1 && cmake --build "$SCRATCH/cmake" >>"$SCRATCH/log" 2>&1 ||
  { cat "$SCRATCH/log"; fail "find_package"; }
run "$SCRATCH/cmake/cxx_shared" shared
run "$SCRATCH/cmake/cxx_static" static
if cmake -S "$consumer" -B "$SCRATCH/newer" -DCMAKE_PREFIX_PATH="$prefix" -DWANTED=99.0 \
  -DCMAKE_CXX_COMPILER="$CXX" >"$SCRATCH/log" 2>&1; then
  fail "find_package takes this version for 99.0"
fi
grep -q 'not compatible\|not accepted\|requested version\|compatible with requested' "$SCRATCH/log" ||
  { cat "$SCRATCH/log"; fail "find_package refused 99.0 for another reason"; }
uninstall
[ ! -e "$prefix" ] || fail "uninstalling left: $(find "$prefix")"
