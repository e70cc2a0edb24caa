# Sourced by the tests of this folder: $rota is the command, and every failed check ends the test.
set -u
rota=$1
examples=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset ROTA_RANK ROTA_SIZE ROTA_ROOT RANK WORLD_SIZE

fail() {
  echo "FAILED: $*" >&2
  [ -s "$folder/err" ] && head -5 "$folder/err" >&2
  exit 1
}

# expect STATUS COMMAND...: runs it, with output in $folder/out and $folder/err.
expect() {
  local wanted=$1 status=0
  shift
  "$@" >"$folder/out" 2>"$folder/err" </dev/null || status=$?
  [ "$status" = "$wanted" ] || fail "status $status, expected $wanted: $*"
}

# refused WORD COMMAND...: status 2 and one line on stderr that holds WORD.
refused() {
  local word=$1
  shift
  expect 2 "$@"
  [ "$(wc -l <"$folder/err")" = 1 ] || fail "not one line: $*"
  grep -qF -e "$word" "$folder/err" || fail "no word of $word: $*"
  [ -s "$folder/out" ] && fail "output beside the error: $*"
  return 0
}
