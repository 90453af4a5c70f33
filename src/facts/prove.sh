# Proves whether datagrams arrive on UDP ports from which nothing came back: a program listens there, and answers.
# Each argument is `kind=word`. Takes 8 s at most; nothing is left on the node.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
LC_ALL=C
export PATH LC_ALL

# Listens on a UDP port for 8 s: prints the port as soon as it may, and who was heard. One of both programs is on
# almost every server; without them nothing is proven.
listen() {
  if command -v perl >/dev/null; then
    perl -e '
      use strict;
      use Socket qw(:DEFAULT IN6ADDR_ANY IPPROTO_IPV6 IPV6_V6ONLY);
      my $port = shift; my $socket; my $end = time + 8;
      (socket($socket, AF_INET6, SOCK_DGRAM, 0) && setsockopt($socket, IPPROTO_IPV6, IPV6_V6ONLY, pack("i", 0))
        && bind($socket, pack_sockaddr_in6($port, IN6ADDR_ANY)))
        || (socket($socket, AF_INET, SOCK_DGRAM, 0) && bind($socket, pack_sockaddr_in($port, INADDR_ANY)))
        || exit 0;
      my $heard = "$port listening\n"; my %heard;
      my $ready = ""; vec($ready, fileno($socket), 1) = 1;
      while ((my $left = $end - time) > 0) {
        my $now = $ready;
        next unless select($now, undef, undef, $left) > 0;
        my $from = recv($socket, my $said, 100, 0);
        next unless defined $from && $said =~ /^rke-operator ([a-z0-9.-]{1,63})\n\z/;
        $heard .= "$port heard $1\n" unless $heard{$1}++;
        send($socket, $said, 0, $from);
      }
      print $heard' "$1" 2>/dev/null
    return 0
  fi
  for python in python3 /usr/libexec/platform-python; do
    command -v "$python" >/dev/null || continue
    "$python" -c '
import re, select, socket, sys, time
port, end = int(sys.argv[1]), time.time() + 8
try:
    it = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    it.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    it.bind(("::", port))
except OSError:
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    it.bind(("", port))
heard = set()
while True:
    left = end - time.time()
    if left <= 0 or not select.select([it], [], [], left)[0]:
        break
    said, who = it.recvfrom(100)
    name = re.fullmatch(rb"rke-operator ([a-z0-9.-]{1,63})\n", said)
    if name:
        heard.add(name.group(1).decode())
        it.sendto(said, who)
print(port, "listening")
for name in sorted(heard):
    print(port, "heard", name)' "$1" 2>/dev/null
    return 0
  done
}

name= peers= ports=
set_name() { name=$1; }
add_peer() { peers="$peers $1"; }
add_port() { ports="$ports $1"; }
each name set_name "$@"
each datagram add_peer "$@"
each listen add_port "$@"

echo @@heard
for port in $ports; do listen "$port" & done
sent=$(
  sleep 1
  # shellcheck disable=SC2086 # Each is a word.
  datagrams 15 "$name" $peers
)
wait
echo @@unanswered
printf '%s\n' "$sent"
echo @@end
