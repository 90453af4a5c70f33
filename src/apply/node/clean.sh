# Gives the node back: pods, mounts, links, network namespaces, iptables chains, folders and
# sysctls that came with Kubernetes. What was there before us stays: BEFORE holds those paths,
# SYSCTLS their former values; both are filled in by the caller. Every step may be repeated.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
before=' BEFORE '
was_there() { case $before in *" $1 "*) return 0 ;; esac; return 1; }

# 1. Pods: tasks, containers, snapshots, images and leases of containerd's `k8s.io`.
k8s() { ctr --timeout 20s --namespace k8s.io "$@"; }
# Everything of one kind, twenty to a call: ctr goes on after a name that it cannot remove.
k8s_rm() {
  kind=$1 && shift
  k8s "$kind" ls -q 2>/dev/null |
    xargs -r -n 20 ctr --timeout 20s --namespace k8s.io "$kind" rm "$@" >/dev/null 2>&1
}
if ctr --timeout 10s namespaces ls -q 2>/dev/null | grep -qx k8s.io; then
  for id in $(k8s tasks ls -q); do k8s tasks kill --all --signal SIGKILL "$id" 2>/dev/null; done
  # containerd's CRI may be quicker with one than we are: what counts is that none is left.
  tries=0
  while tasks=$(k8s tasks ls -q) && [ -n "$tasks" ] && [ "$tries" -lt 50 ]; do
    for id in $tasks; do k8s tasks rm --force "$id" >/dev/null 2>&1; done
    tries=$((tries + 1))
    sleep 0.1
  done
  k8s_rm containers
  # One by one: of these ctr stops at the first that it cannot remove.
  k8s leases ls -q 2>/dev/null | while read -r id; do k8s leases rm "$id" >/dev/null 2>&1; done
  k8s_rm images --sync
  # Children before parents: what is still somebody's parent goes in the next round.
  rounds=0
  while left=$(k8s snapshots ls 2>/dev/null | awk 'NR > 1 { print $1 }') && [ -n "$left" ] && [ "$rounds" -lt 30 ]; do
    for key in $left; do k8s snapshots rm "$key" >/dev/null 2>&1; done
    rounds=$((rounds + 1))
  done
  k8s_rm content
  ctr namespaces rm k8s.io >/dev/null 2>&1
fi

# 2. Mounts below kubelet's root and of sandboxes, deepest first; network namespaces of CNI.
awk '{ print $2 }' /proc/self/mounts | grep -E '^(/var/lib/kubelet|/run/containerd/io\.containerd\.grpc\.v1\.cri|/run/containerd/io\.containerd\.runtime\.v2\.task/k8s\.io)(/|$)' |
  sort -r | while read -r mount; do umount "$mount" 2>/dev/null || umount --lazy "$mount"; done
# What CRI itself remembers of them: with CRI off again it would not clear up after a restart.
for folder in /var/lib/containerd /run/containerd; do
  for kind in containers sandboxes; do
    find "$folder/io.containerd.grpc.v1.cri/$kind" -mindepth 1 -maxdepth 1 \
      -exec rm -rf --one-file-system {} + 2>/dev/null
  done
done
for netns in /run/netns/cni-*; do
  [ -e "$netns" ] || continue
  umount "$netns" 2>/dev/null
  rm -f "$netns"
done

# 3. Links and iptables. Rules first leave the chains of others, then our chains go.
for link in cni0 flannel.1; do
  was_there "/sys/class/net/$link" || ip link delete "$link" 2>/dev/null
done
ours='^(KUBE|CNI|FLANNEL)-'
for tool in iptables-nft iptables-legacy iptables ip6tables-nft ip6tables-legacy ip6tables; do
  command -v "$tool" >/dev/null || continue
  case $tool in iptables | ip6tables) command -v "$tool-nft" >/dev/null && continue ;; esac
  for table in nat filter mangle raw; do
    rules=$("$tool" -w 5 -t "$table" -S 2>/dev/null) || continue
    echo "$rules" | grep -E '^-A ' | grep -vE '^-A (KUBE|CNI|FLANNEL)-' |
      grep -E -- '-[jg] (KUBE|CNI|FLANNEL)-' | sed 's/^-A/-D/' |
      while read -r rule; do eval "$tool -w 5 -t $table $rule"; done
    chains=$(echo "$rules" | awk -v ours="$ours" '$1 == "-N" && $2 ~ ours { print $2 }')
    for chain in $chains; do "$tool" -w 5 -t "$table" -F "$chain"; done
    for chain in $chains; do "$tool" -w 5 -t "$table" -X "$chain"; done
  done
done 2>/dev/null

# 4. Folders that were not there before us; in those that were, only what we added.
if was_there /opt/cni/bin; then
  for file in /opt/cni/bin/*; do was_there "$file" || rm -f "$file"; done
fi
# Who recorded what was there may not have been allowed to look into this one.
was_there /etc/cni/net.d/10-flannel.conflist || rm -f /etc/cni/net.d/10-flannel.conflist
for path in /etc/cni/net.d /etc/cni /opt/cni/bin /opt/cni /run/flannel /var/lib/calico /var/lib/cni \
  /var/log/containers /var/log/kube-audit /var/log/pods /usr/libexec/kubernetes; do
  was_there "$path" || rm -rf --one-file-system "$path"
done
# Those were empty (mount points, say), or the claim would have been refused.
for path in /etc/kubernetes /var/lib/etcd /var/lib/kubelet; do
  if was_there "$path"; then
    find "$path" -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf --one-file-system {} +
  else
    rm -rf --one-file-system "$path"
  fi
done
rm -f /etc/modules-load.d/rke-operator.conf /etc/sysctl.d/99-rke-operator.conf
rm -f /run/rke-operator-containerd.result
for folder in /etc/containerd/certs.d /etc/modules-load.d /etc/sysctl.d; do
  was_there "$folder" || rmdir "$folder" 2>/dev/null
done

# 5. cgroups of pods, leaves first.
systemctl stop kubepods.slice 2>/dev/null
find /sys/fs/cgroup -depth -type d \( -path '*/kubepods/*' -o -name kubepods \) -exec rmdir {} \; 2>/dev/null

# 6. Sysctls as they were.
for setting in SYSCTLS; do
  name=${setting%%=*} value=${setting#*=}
  file=/proc/sys/$(echo "$name" | tr . /)
  [ -e "$file" ] && [ "$(cat "$file")" != "$value" ] && echo "$value" >"$file"
done 2>/dev/null

# The verdict: what should be gone and is not.
left=
for path in /etc/kubernetes /var/lib/etcd /var/lib/kubelet /sys/class/net/cni0 /sys/class/net/flannel.1; do
  was_there "$path" || { [ -e "$path" ] && left="$left $path"; }
done
[ -z "$left" ] || { echo "still there:$left"; exit 1; }
