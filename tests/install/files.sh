#!/usr/bin/env bash
# Everything arrives where it belongs, also under DESTDIR, and uninstalling leaves what was there.
. "$(dirname "$0")/installation.sh"

prefix=$SCRATCH/target
mkdir -p "$prefix/share/empty" "$prefix/include"
echo mine >"$prefix/include/mine.h"
before=$(cd "$prefix" && find . | sort)

install_to "$prefix"
libraries=$(library_folder "$prefix")
for file in bin/rota bin/all_reduce_perf include/rota/rota.h; do
  [ -e "$prefix/$file" ] || fail "$file is missing"
done
for file in librota.so.0 librota.a pkgconfig/rota.pc cmake/rota/rotaConfig.cmake \
  cmake/rota/rotaConfigVersion.cmake; do
  [ -e "$libraries/$file" ] || fail "$libraries/$file is missing"
done
[ "$(readlink "$libraries/librota.so")" = librota.so.0 ] || fail "librota.so is no link to librota.so.0"
[ "$(readlink "$prefix/bin/all_reduce_perf")" = rota ] || fail "all_reduce_perf is no link to rota"
for path in "$SOURCE"/include/rota/*.h; do
  cmp "$path" "$prefix/include/rota/$(basename "$path")" || fail "$path"
done
if [ -d "$BUILD/man" ]; then
  nm -D --defined-only "$libraries/librota.so" | sed -n 's/.* T \(rota_[a-z0-9_]*\).*/\1/p' |
    while read -r name; do
      [ -s "$prefix/share/man/man3/$name.3" ] || fail "$name has no page"
    done
  "$prefix/bin/rota" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' |
    while read -r name; do
      [ -s "$prefix/share/man/man1/rota-$name.1" ] || fail "rota $name has no page"
    done
fi
# Nothing may lead back to where it was built.
grep -r -l -F "$BUILD" "$libraries/cmake" "$libraries/pkgconfig" "$prefix/include" &&
  fail "the files above name the build folder"
readelf -d "$prefix/bin/rota" | grep -E 'RPATH|RUNPATH' | grep -F "$BUILD" && fail "rpath of the command"
[ "$(cd / && env -u LD_LIBRARY_PATH "$prefix/bin/rota" --version)" != "" ] || fail "the command"

install_to "$prefix" # twice is as once
uninstall
after=$(cd "$prefix" && find . | sort)
[ "$before" = "$after" ] || fail "uninstalling left: $after"
! cmake --build "$BUILD" --target uninstall >/dev/null 2>&1 || fail "nothing was left to uninstall"

install_to /usr "$SCRATCH/stage"
package=$(find "$SCRATCH/stage" -name rota.pc)
grep -q '^prefix=/usr$' "$package" || fail "DESTDIR stands in rota.pc"
uninstall "$SCRATCH/stage"
[ ! -e "$SCRATCH/stage" ] || fail "uninstalling with DESTDIR left: $(find "$SCRATCH/stage")"
