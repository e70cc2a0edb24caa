# Sourced by the tests of this folder: a scratch folder, failures, and an installation of $BUILD
# whose records in the build folder are put back, so that a user's own `uninstall` still works.
set -euo pipefail
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/rota-install.XXXXXX")
CXX=${CXX:-$(command -v "$(basename "$CC" | sed 's/^clang/clang++/; s/gcc/g++/; s/^cc$/c++/')" || command -v c++)}
unset DESTDIR
RECORDS=(install_manifest.txt install_folders.txt)

finish() {
  local name
  if [ -d "$SCRATCH/records" ]; then
    for name in "${RECORDS[@]}"; do
      rm -f "$BUILD/$name"
      [ ! -e "$SCRATCH/records/$name" ] || cp -p "$SCRATCH/records/$name" "$BUILD/$name"
    done
  fi
  rm -rf "$SCRATCH"
}
trap finish EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# install_to PREFIX [DESTDIR]
install_to() {
  local name
  if [ ! -d "$SCRATCH/records" ]; then
    mkdir "$SCRATCH/records"
    for name in "${RECORDS[@]}"; do
      [ ! -e "$BUILD/$name" ] || mv "$BUILD/$name" "$SCRATCH/records/$name"
    done
  fi
  DESTDIR=${2:-} cmake --install "$BUILD" --prefix "$1" >"$SCRATCH/install.log" 2>&1 ||
    { cat "$SCRATCH/install.log"; fail "install to $1"; }
}

# uninstall [DESTDIR]
uninstall() {
  DESTDIR=${1:-} cmake --build "$BUILD" --target uninstall >"$SCRATCH/uninstall.log" 2>&1 ||
    { cat "$SCRATCH/uninstall.log"; fail "uninstall"; }
}

# The folder of an installation's libraries: lib, lib64 or lib/TRIPLET.
library_folder() {
  dirname "$(find "$1" -name librota.so)"
}
