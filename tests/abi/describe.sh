#!/usr/bin/env bash
# describe.sh LIBRARY SOURCE_FOLDER DESCRIPTION: writes what a library with debug information offers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
abidw --exported-interfaces-only --no-corpus-path --no-comp-dir-path --no-show-locs \
  --suppr "$here/opaque.suppress" --out-file "$3" "$1"
sed -i "s|path='$2/|path='|" "$3" # not where it was built
