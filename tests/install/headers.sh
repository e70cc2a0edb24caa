#!/usr/bin/env bash
# Each public header stands alone, in C11 and in C++17, without a warning; so do the initializers.
. "$(dirname "$0")/installation.sh"

strict=(-Wall -Wextra -Wshadow -Wconversion -pedantic -Werror -fsyntax-only "-I$SOURCE/include")
count=0
for path in "$SOURCE"/include/rota/*.h; do
  header=rota/$(basename "$path")
  echo "#include <$header>" >"$SCRATCH/alone.c"
  cp "$SCRATCH/alone.c" "$SCRATCH/alone.cc"
  # Each sized struct of the header can be initialized by its macro, in a function and outside.
  sed -n 's/^#define \(ROTA_[A-Z_]*_INIT\) ROTA_SIZED(\(rota_[a-z_]*\))$/\2 \1/p' "$path" |
    while read -r type macro; do
      printf 'extern %s a_%s;\n%s a_%s = %s;\n' "$type" "$type" "$type" "$type" "$macro"
      printf 'extern int use_%s(void);\nint use_%s(void) {\n  %s b = %s;\n  return b.size == 0;\n}\n' \
        "$type" "$type" "$type" "$macro"
    done | tee -a "$SCRATCH/alone.c" >>"$SCRATCH/alone.cc"
  "$CC" -std=c11 "${strict[@]}" "$SCRATCH/alone.c" || fail "$header as C11"
  "$CXX" -std=c++17 "${strict[@]}" "$SCRATCH/alone.cc" || fail "$header as C++17"
  grep -q "<$header>" "$SOURCE/include/rota/rota.h" || [ "$header" = rota/rota.h ] ||
    fail "rota.h does not include $header"
  count=$((count + 1))
done
initializers=$(grep -ho 'ROTA_[A-Z_]*_INIT\b' "$SOURCE"/include/rota/*.h | sort -u | wc -l)
sized=$(cat "$SOURCE"/include/rota/*.h | grep -c 'define ROTA_[A-Z_]*_INIT ROTA_SIZED(')
[ "$count" -ge 9 ] || fail "only $count headers were found"
[ "$initializers" -eq "$sized" ] || fail "$initializers initializers, $sized of them by ROTA_SIZED"
echo "$count headers, $sized initializers"
