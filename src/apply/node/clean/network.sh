# Network namespaces, links and rules. podman, nerdctl and others use CNI too: only what names the
# cluster's network, or belongs to a pod that containerd listed, is the cluster's.

# Results of CNI for our networks name the namespace of each pod, too.
results() {
  printf '%s' "$networks" | while IFS= read -r network; do
    grep -ls "\"networkName\":\"$network\"" "$root"/var/lib/cni/results/* 2>/dev/null
  done
}

our_namespaces() {
  {
    sed -n 's/^netns //p' "$traces" 2>/dev/null
    results | while read -r file; do grep -o '/run/netns/[A-Za-z0-9_.-]*' "$file"; done
  } | sort -u
}

clean_namespaces() {
  our_namespaces | while read -r netns; do
    [ -e "$root$netns" ] || continue
    unmount "$root$netns"
    is_mount_point "$(readlink -f "$root/run")/netns/${netns##*/}" || rm -f "$root$netns"
  done
}

left_of_namespaces() {
  our_namespaces | while read -r netns; do
    [ ! -e "$root$netns" ] || mark left namespace "$netns"
  done
}

our_links() {
  for link in cni0 flannel.1 flannel-v6.1 kube-ipvs0 vxlan.calico vxlan-v6.calico; do
    was_there "/sys/class/net/$link" || echo "$link"
  done
}

clean_links() {
  our_links | while read -r link; do
    [ -e "$root/sys/class/net/$link" ] && timeout 10 ip link delete "$link" 2>/dev/null
  done
  # calico's tunnel is a part of its module, and cannot be deleted; without calico nothing uses it.
  if [ -e "$root/sys/class/net/tunl0" ] && [ -d "$root/var/lib/calico" ] && ! has_calico_of_others; then
    timeout 10 ip address flush dev tunl0 2>/dev/null
    timeout 10 ip link set tunl0 down 2>/dev/null
    timeout 10 modprobe -r ipip 2>/dev/null
  fi
}

left_of_links() {
  our_links | while read -r link; do
    [ ! -e "$root/sys/class/net/$link" ] || mark left link "$link"
  done
}

# calico's chains and sets have the same names in every installation: where a calico was there
# before, its chains and sets cannot be distinguished from the cluster's.
has_calico_of_others() { was_there /var/lib/calico; }

# The families of iptables that this node has.
tables() {
  for tool in iptables ip6tables; do
    variants=
    for variant in nft legacy; do
      command -v "$tool-$variant-save" >/dev/null && variants="$variants $tool-$variant"
    done
    [ -n "$variants" ] || { command -v "$tool-save" >/dev/null && variants=$tool; }
    for variant in $variants; do echo "$variant"; done
  done
}

# Deletes the cluster's rules and chains: a text for iptables-restore. That reads a rule's words as
# iptables-save wrote them, so that no part of a rule is ever parsed by the shell.
our_rules() {
  saved=$(timeout -k 5 30 "$1-save" 2>/dev/null) || return 1
  ids=$(sed -n 's/^id //p' "$traces" 2>/dev/null)
  flannel=yes calico=yes
  was_there /sys/class/net/flannel.1 && flannel=no
  has_calico_of_others && calico=no
  printf '%s\n' "$saved" |
    NETWORKS=$networks IDS=$ids FLANNEL=$flannel CALICO=$calico awk "$rules_awk"
}

clean_rules() {
  tables | while read -r tool; do
    # Again when something else changed the rules meanwhile.
    for _ in 1 2 3; do
      text=$(our_rules "$tool") && [ -n "$text" ] || break
      printf '%s\n' "$text" | timeout -k 5 30 "$tool-restore" --noflush -w 5 2>/dev/null ||
        printf '%s\n' "$text" | timeout -k 5 30 "$tool-restore" --noflush 2>/dev/null
    done
  done
  # kube-proxy in mode nftables.
  for family in ip ip6; do
    timeout 10 nft list table "$family" kube-proxy >/dev/null 2>&1 &&
      timeout 10 nft delete table "$family" kube-proxy 2>/dev/null
  done
  # kube-proxy in mode ipvs; a set that another owner's rule uses stays, and is reported.
  our_sets | while read -r set; do
    timeout 10 ipset destroy "$set" 2>/dev/null
  done
}

our_sets() {
  ours='^KUBE-'
  has_calico_of_others || ours='^KUBE-\|^cali[46]0'
  timeout 10 ipset list -n 2>/dev/null | grep "$ours"
}

# Without iptables its rules cannot be read. There are none where the kernel has no table of it: as after a restart.
left_without_iptables() {
  [ -s "$root/proc/net/ip_tables_names" ] || [ -s "$root/proc/net/ip6_tables_names" ] ||
    [ -d "$root/sys/module/nf_tables" ] || return 0
  chains=$(timeout 30 nft list chains 2>/dev/null) ||
    { mark unknown chains "there is no iptables on this node"; return; }
  printf '%s\n' "$chains" | sed -n 's/^[[:space:]]*chain \(KUBE-[^ ]*\) .*/\1/p' | sort -u | while read -r chain; do
    mark left chain "$chain (nft)"
  done
}

left_of_rules() {
  [ -n "$(tables)" ] || left_without_iptables
  tables | while read -r tool; do
    text=$(our_rules "$tool") || { mark unknown chains "$tool-save fails"; continue; }
    printf '%s\n' "$text" | sed -n 's/^-X //p' | sort -u | while read -r chain; do
      mark left chain "$chain ($tool)"
    done
  done
  for family in ip ip6; do
    timeout 10 nft list table "$family" kube-proxy >/dev/null 2>&1 && mark left table "$family kube-proxy"
  done
  our_sets | while read -r set; do mark left set "$set"; done
}
