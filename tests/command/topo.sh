#!/bin/bash
# rota topo: forms of output, what is refused, comparison with NCCL's rings.
. "$(dirname "$0")/check.sh"
data=$(dirname "$0")/../topology/data

refused --format "$rota" topo --format xml
refused --merge "$rota" topo --merge
refused 'unexpected argument' "$rota" topo dgx.xml
expect 1 "$rota" topo --xml "$data/hwloc/power8-p100-v3.xml"
grep -q 'hwloc XML of version 3, expected at most 2' "$folder/err" || fail "hwloc's version 3"
expect 1 "$rota" topo --xml "$folder/missing"
grep -q "$folder/missing cannot be read: No such file" "$folder/err" || fail "a missing file"
expect 1 "$rota" topo --xml "$data/nccl-graph/azure-ncv4-graph.xml"
grep -q 'NCCL graph file' "$folder/err" || fail "rings instead of a topology"

expect 0 "$rota" topo --xml "$data/nccl/dgx1v-derived.xml" --rings --trees --nics --matrix --explain
grep -q '^Rings (direct): 6, together 6 of at most 6 links' "$folder/out" || fail "rings as text"
grep -q 'NCCL src/graph/topo.h SM70_NVLINK_BW' "$folder/out" || fail "source of a speed"
grep -q '^GPU 2   PIX: mlx5_1$' "$folder/out" || fail "nearest NIC"

for file in nccl/dgx1v-derived.xml nccl/dgx-a100.xml nccl/rccl-4p2h.xml matrix/dgx1v-vm.txt \
  cluster/fat-tree.txt cluster/dragonfly.txt cluster/torus.txt cluster/rails.txt; do
  expect 0 "$rota" topo --xml "$data/$file" --rings --format svg
  python3 - "$folder/out" <<'END' || fail "picture of $file"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
assert root.tag.endswith("svg") and len(root) > 4, len(root)
END
  expect 0 "$rota" topo --xml "$data/$file" --rings --trees --format json
  python3 - "$folder/out" <<'END' || fail "json of $file"
import json, sys
shown = json.load(open(sys.argv[1]))
gpus = len(shown["gpus"])
assert shown["rings"] and all(sorted(r["gpus"]) == list(range(gpus)) for r in shown["rings"])
assert all(len(tree["edges"]) == gpus - 1 for tree in shown["trees"])
END
done

expect 0 "$rota" topo --xml "$data/nccl/dgx1v-derived.xml" --format nccl
cp "$folder/out" "$folder/written.xml"
expect 0 "$rota" topo --xml "$folder/written.xml" --rings
grep -q '6 of at most 6 links' "$folder/out" || fail "what was written for NCCL"

expect 0 "$rota" topo --xml "$data/nccl/azure-ncv4.xml" \
  --against "$data/nccl-graph/azure-ncv4-graph.xml"
grep -q 'file:  2 rings' "$folder/out" || fail "NCCL's rings"
expect 1 "$rota" topo --xml "$data/nccl/dgx1v-derived.xml" \
  --against "$data/nccl-graph/azure-ncv4-graph.xml"
grep -q 'its rings have 4 GPUs' "$folder/err" || fail "rings of another machine"
exit 0
