#!/bin/sh
# Two network namespaces joined by a wire, which the given program cuts.
# Usage: partition.sh PROGRAM. Exits with 77 where namespaces or filters are not permitted.
a=rota-left-$$ b=rota-right-$$
cleanup() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
}
trap cleanup EXIT
if ! ip netns add "$a" 2>/dev/null || ! ip netns add "$b" 2>/dev/null ||
    ! ip netns exec "$a" nft add table inet probe 2>/dev/null; then
    echo "skipped: network namespaces or nft are not permitted here"
    exit 77
fi
ip -n "$a" link add wire type veth peer name wire netns "$b"
for n in "$a" "$b"; do
    ip -n "$n" link set lo up
    ip -n "$n" link set wire up
done
ip -n "$a" addr add 10.9.0.1/24 dev wire
ip -n "$b" addr add 10.9.0.2/24 dev wire
"$1" partition "$a" "$b"
