# Measures what a survey does not tell: how long packets to other nodes may be, and whether datagrams arrive there. Each
# argument is `kind=word`. Writes nothing.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
LC_ALL=C
export PATH LC_ALL

# Each is `address/bytes`. What answers short packets and no long ones is behind a way that drops them; then the length
# that passes.
echo @@packets
packets=
add_packets() { packets="$packets $1"; }
each packets add_packets "$@"
try_packets() {
  { command -v ping && command -v xargs; } >/dev/null || return 0
  [ $# -gt 0 ] || return 0
  printf '%s\n' "$@" | xargs -P 50 -n 1 sh -c '
    address=${0%/*} bytes=${0##*/} head=28
    case $address in *:*) head=48 ;; esac
    passes() { ping -nq -c "$1" -W 1 -M "do" -s "$(($2 - head))" "$address" >/dev/null 2>&1; }
    passes 2 128 && ! passes 2 "$bytes" || exit 0
    for fits in 8950 8900 1492 1480 1450 1420 1400 1350 1280 576; do
      [ "$fits" -lt "$bytes" ] && passes 1 "$fits" && break
      fits=0
    done
    echo "$0 $fits"'
}
# shellcheck disable=SC2086 # Each is a word.
try_packets $packets

# UDP ports that something listens on: the kernel too, for a tunnel. It takes datagrams without an answer.
echo @@taken
taken() {
  hex=$(printf '%04X' "$1")
  grep -qsi "^ *[0-9]*: [0-9A-F]*:$hex " /proc/net/udp /proc/net/udp6 && echo "$1"
}
each port taken "$@"

echo @@unanswered
peers=
add_peer() { peers="$peers $1"; }
each datagram add_peer "$@"
# shellcheck disable=SC2086 # Each is a word.
datagrams 5 node $peers
echo @@end
