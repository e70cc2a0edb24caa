#!/usr/bin/env bash
# A project takes rota in by add_subdirectory: it gets the libraries, and no tests, programs, install
# rules or warnings of ours.
. "$(dirname "$0")/installation.sh"

cmake -S "$SOURCE/tests/install/subproject" -B "$SCRATCH/build" -G Ninja -DROTA_SOURCE="$SOURCE" \
  -DCMAKE_C_COMPILER="$CC" >"$SCRATCH/log" 2>&1 || { cat "$SCRATCH/log"; fail "configure"; }
cmake --build "$SCRATCH/build" >"$SCRATCH/log" 2>&1 || { cat "$SCRATCH/log"; fail "build"; }
for form in shared static; do
  "$BUILD/bin/rota" run -n 2 --timeout 60 -- "$SCRATCH/build/sum_$form" >"$SCRATCH/output" 2>&1 ||
    { cat "$SCRATCH/output"; fail "sum_$form"; }
  [ "$(sort "$SCRATCH/output")" = "$(printf '[%d] sum 3 of 2 ranks\n' 0 1)" ] ||
    { cat "$SCRATCH/output"; fail "sum_$form printed this"; }
done
found=$(find "$SCRATCH/build" -type f -executable -not -path '*/CMakeFiles/*' -not -name '*.so*' | sort)
[ "$found" = "$(printf '%s\n' "$SCRATCH"/build/sum_shared "$SCRATCH"/build/sum_static)" ] ||
  fail "the project got more programs than its own: $found"
ninja -C "$SCRATCH/build" -t targets all | grep -E '^(uninstall|rota_man|test_)' &&
  fail "the project got the targets above"
DESTDIR=$SCRATCH/stage cmake --install "$SCRATCH/build" >"$SCRATCH/log" 2>&1
[ ! -e "$SCRATCH/stage" ] || fail "the project installs $(find "$SCRATCH/stage" -type f)"
