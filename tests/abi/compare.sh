#!/usr/bin/env bash
# compare.sh LIBRARY SOURCE_FOLDER: fails where a program built against the library that rota.abi
# describes would not run with this one: a function removed, a type changed. Additions are none of
# its business; script/update-abi takes them up. Ends with 77 where it cannot tell.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v abidw >/dev/null || ! command -v abidiff >/dev/null; then
  echo "skipped: no abidw and abidiff here (Debian: abigail-tools)"
  exit 77
fi
if ! readelf -S -W "$1" | grep '\.debug_info' >/dev/null; then
  echo "skipped: $1 was built without debug information"
  exit 77
fi
if ! readelf -h "$1" | grep 'Machine:.*X86-64' >/dev/null; then
  echo "skipped: rota.abi describes the interface on x86-64"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$here/describe.sh" "$1" "$2" "$scratch/now.abi"

# compare OLD: whether the library still serves programs of OLD.
compare() {
  abidiff --no-added-syms --suppr "$here/allowed.suppress" "$1" "$scratch/now.abi"
}

compare "$here/rota.abi" || {
  echo "The binary interface has changed; where that is meant: script/update-abi"
  exit 1
}

# The comparison itself: it must see what is wrong, and nothing where something was added.
# control allowed|refused SED_SCRIPT: rota.abi as it would have been.
control() {
  local result=allowed
  sed -E "$2" "$here/rota.abi" >"$scratch/old.abi"
  ! cmp -s "$here/rota.abi" "$scratch/old.abi" || { echo "control '$2' changes nothing"; exit 1; }
  compare "$scratch/old.abi" >"$scratch/report" 2>&1 || result=refused
  [ "$result" = "$1" ] || { cat "$scratch/report"; echo "control '$2' was $result"; exit 1; }
}
control refused 's/rota_version/rota_vanished/g'
control refused "/name='ROTA_ERR_BUSY'/s/value='9'/value='90'/"
control refused "/name='ROTA_ERR_BUSY'/{p; s/BUSY' value='9'/VANISHED' value='99'/}"
control refused "/class-decl name='rota_unique_id'/s/size-in-bits='1024'/size-in-bits='2048'/"
control allowed "/elf-symbol name='rota_version'/d
                 /function-decl name='rota_version'/,/<.function-decl>/d"
control allowed "/name='ROTA_ERR_BUSY'/d"
