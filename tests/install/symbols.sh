#!/usr/bin/env bash
# The libraries show their public functions and nothing else; the shared one has its soname.
. "$(dirname "$0")/installation.sh"

shared=$BUILD/lib/librota.so
nm -D --defined-only "$shared" | sed 's/^[0-9a-f ]* //' >"$SCRATCH/shared"
grep -q '^T rota_init@@ROTA_0$' "$SCRATCH/shared" || fail "rota_init is not exported as ROTA_0"
grep -v -E '^T rota_[a-z0-9_]+@@ROTA_[0-9]+$|^A ROTA_[0-9]+$' "$SCRATCH/shared" &&
  fail "the shared library exports the above too"

nm -g --defined-only "$BUILD/lib/librota.a" 2>/dev/null | sed -n 's/^[0-9a-f]\{8,\} //p' >"$SCRATCH/static"
grep -q '^T rota_init$' "$SCRATCH/static" || fail "rota_init is not in the static library"
grep -v -E '^T rota_[a-z0-9_]+$' "$SCRATCH/static" && fail "the static library shows the above too"

readelf -d "$shared" | grep -q 'SONAME.*\[librota\.so\.0\]' || fail "soname"
readelf -d "$shared" | grep -q -E 'RPATH|RUNPATH' && fail "the library has a path of this machine in it"
readelf -d "$shared" | grep -q TEXTREL && fail "the library has text relocations"
readelf -W -l "$shared" | grep -q 'GNU_STACK.*RWE' && fail "the library asks for an executable stack"
echo "$(grep -c '^T' "$SCRATCH/shared") functions"
