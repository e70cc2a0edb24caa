#!/bin/sh
# Jobs of two ranks in two network namespaces joined by a veth pair (cases C60 to C63).
# Usage: namespaces.sh MEET. Exits with 77 where namespaces are not permitted.
meet=$1
a=rota-a-$$ b=rota-b-$$
folder=$(mktemp -d)
export ROTA_INIT_TIMEOUT_MS=10000

cleanup() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$folder"
}
trap cleanup EXIT
if ! ip netns add "$a" 2>/dev/null || ! ip netns add "$b" 2>/dev/null ||
    ! unshare -m true 2>/dev/null; then
    echo "skipped: network and mount namespaces are not permitted here"
    exit 77
fi
failures=0

# rank_in NAMESPACE HOSTNAME HOSTS-FILE RANK [NAME=VALUE...]
rank_in() {
    namespace=$1 host=$2 hosts=$3 rank=$4
    shift 4
    ip netns exec "$namespace" unshare -m -u sh -c '
        mount --bind "$2" /etc/hosts && hostname "$1" && shift 2 && exec env "$@"' sh \
        "$host" "$hosts" ROTA_RANK="$rank" ROTA_SIZE=2 "$@" "$meet"
}

# job NAME PATTERN-A PATTERN-B [NAME=VALUE...]: what the outputs of the two ranks must hold.
job() {
    name=$1 pattern_a=$2 pattern_b=$3
    shift 3
    rank_in "$a" hosta "$folder/hosts-a" 0 "$@" >"$folder/out-a" 2>&1 &
    first=$!
    rank_in "$b" "${hostb:-hostb}" "$folder/hosts-b" 1 "$@" >"$folder/out-b" 2>&1
    wait $first
    for side in a b; do
        pattern=$pattern_b
        [ $side = a ] && pattern=$pattern_a
        if ! grep -q -e "$pattern" "$folder/out-$side"; then
            echo "FAILED: $name: \"$pattern\" is not in the output of $side:"
            cat "$folder/out-$side"
            failures=$((failures + 1))
        fi
    done
    echo "done: $name"
}

link() {
    ip -n "$a" link add "$1" type veth peer name "$1" netns "$b"
    ip -n "$a" link set "$1" up
    ip -n "$b" link set "$1" up
}
for n in "$a" "$b"; do
    ip -n "$n" link set lo up
    ip netns exec "$n" sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0
done
link wire
ip -n "$a" addr add 10.9.0.1/24 dev wire
ip -n "$b" addr add 10.9.0.2/24 dev wire
printf '127.0.0.1 localhost\n127.0.1.1 hosta\n' >"$folder/hosts-a"
printf '127.0.0.1 localhost\n127.0.1.1 hostb\n10.9.0.1 hosta\n' >"$folder/hosts-b"

job "C60 own name is loopback" "rank 1 at 10.9.0.2" "rank 0 at 10.9.0.1" ROTA_ROOT=hosta:5000
hostb=$(printf '%064d' 7)
job "C60 host name of 64 characters" "rank 1 at 10.9.0.2" "rank 0 at 10.9.0.1" ROTA_ROOT=10.9.0.1:5000
hostb=hostb

for n in "$a" "$b"; do
    ip -n "$n" link add docker0 type bridge
    ip -n "$n" addr add 172.17.0.1/16 dev docker0
    ip -n "$n" link set docker0 up
    ip -n "$n" link add veth12ab type veth peer name veth12cd
    ip -n "$n" addr add 169.254.7.7/16 dev veth12ab
    ip -n "$n" link set veth12ab up
    ip -n "$n" link set veth12cd up
    ip -n "$n" link add down0 type veth peer name down1
    ip -n "$n" addr add 10.1.0.1/24 dev down0
done
for setting in ROTA_INTERFACE= "ROTA_INTERFACE=^docker0" ROTA_INTERFACE=wrong,wire; do
    job "C61 $setting" "rank 1 at 10.9.0.2" "rank 0 at 10.9.0.1" ROTA_ROOT=10.9.0.1:5000 "$setting"
done
job "C61 unknown name" "found: .*wire" "found: .*wire" ROTA_ROOT=10.9.0.1:5000 ROTA_INTERFACE=wrong

filter() {
    ip netns exec "$a" nft add table inet t 2>/dev/null &&
        ip netns exec "$a" nft add chain inet t i '{ type filter hook input priority 0; }' &&
        ip netns exec "$a" nft add rule inet t i iifname wire tcp flags syn tcp dport != 5000-5031 $1
}
if filter drop; then
    job "C63 port range" "rank 1 at 10.9.0.2:50[0-3]" "rank 0 at 10.9.0.1:50[0-3]" \
        ROTA_ROOT=10.9.0.1:5000 ROTA_PORT_RANGE=5001-5031
    job "C63 dropped" "rank 1 of 2 did not join" "10.9.0.1:6000.*timed out" \
        ROTA_ROOT=10.9.0.1:6000 ROTA_INIT_TIMEOUT_MS=2000
    ip netns exec "$a" nft delete table inet t
    filter "reject with tcp reset"
    job "C63 rejected" "rank 1 of 2 did not join" "10.9.0.1:6000.*Connection refused" \
        ROTA_ROOT=10.9.0.1:6000 ROTA_INIT_TIMEOUT_MS=2000
    ip netns exec "$a" nft delete table inet t
else
    echo "skipped: C63, nft does not work here"
fi

# IPv6: nothing else, then only link-local, then none.
for n in "$a" "$b"; do
    ip -n "$n" addr flush dev wire scope global
    ip -n "$n" addr del 127.0.0.1/8 dev lo
done
ip -n "$a" addr add fd00:9::1/64 dev wire nodad
ip -n "$b" addr add fd00:9::2/64 dev wire nodad
job "C62 IPv6 alone" "rank 1 at .fd00:9::2" "rank 0 at .fd00:9::1" "ROTA_ROOT=[fd00:9::1]:5000"
scope_a=$(ip -n "$a" -6 -o addr show dev wire scope link | sed 's/.*inet6 \([^/]*\).*/\1/')
for n in "$a" "$b"; do
    ip -n "$n" addr flush dev wire scope global
done
job "C62 link-local alone" "rank 1 at .fe80" "rank 0 at .fe80" "ROTA_ROOT=[$scope_a%wire]:5000"
for n in "$a" "$b"; do
    ip netns exec "$n" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    ip -n "$n" addr add 127.0.0.1/8 dev lo
done
ip -n "$a" addr add 10.9.0.1/24 dev wire
ip -n "$b" addr add 10.9.0.2/24 dev wire
job "C62 IPv6 disabled" "rank 1 at 10.9.0.2" "rank 0 at 10.9.0.1" ROTA_ROOT=10.9.0.1:5000
exit $failures
