# Reads, as root and after `disk.sh`, which chains drop what the node forwards unless one of their rules accepts it. Changes nothing, and loads
# no module: tables that the kernel does not have are not read. Each argument is `range=NETWORK`, one of pods.
ranges=
add_range() { ranges="$ranges -e $1"; }
each range add_range "$@"

# Rules that know the links or the range of pods are made for them, whatever they do.
# shellcheck disable=SC2086 # Each is a word.
knows_pods() { grep -qF -e cni0 -e flannel -e cali -e KUBE-FORWARD $ranges; }

[ -n "$ranges" ] || {
  echo @@end
  exit
}

echo @@iptables
version=$(timeout 5 iptables --version 2>/dev/null)
printf '%s\n' "$version"

echo @@dropping
# $1 family, $2 the list of tables, $3 the program
legacy() {
  grep -qsx filter "$2" || return 0
  save=$3-legacy-save
  if ! command -v "$save" >/dev/null; then
    case $version in *nf_tables*) return 0 ;; esac
    save=$3-save
  fi
  rules=$(timeout 10 "$save" -t filter 2>/dev/null) || return 0
  printf '%s\n' "$rules" | grep -q '^:FORWARD DROP' || return 0
  printf '%s\n' "$rules" | knows_pods || echo "legacy $1 filter FORWARD"
}
legacy ip /proc/net/ip_tables_names iptables
legacy ip6 /proc/net/ip6_tables_names ip6tables

# A part of the kernel, or a module that was loaded.
has_nftables() { [ -d /sys/module/nf_tables ] || grep -q ' nf_tables_newtable' /proc/kallsyms; }

# The chain of iptables-nft is one of them.
if has_nftables; then
  timeout 10 nft list chains 2>/dev/null | awk '
    $1 == "table" { family = $2; table = $3 }
    $1 == "chain" { chain = $2 }
    / hook forward / && / policy drop;/ { print family, table, chain }' |
    while read -r family table chain; do
      case $family in ip | ip6 | inet) ;; *) continue ;; esac
      timeout 10 nft list table "$family" "$table" 2>/dev/null | knows_pods ||
        echo "nft $family $table $chain"
    done
fi
echo @@end
