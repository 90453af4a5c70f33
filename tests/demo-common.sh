# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # who sources it sets `name`, `part` and `kubectl`, and reads `doing`
# What the two parts of `make demo` and `make conformance` share: commands shown as you would type them, and the
# state of a node.
# Sourced after `name` (the lab's) and `part` (a folder of its own) are set.

target="$(pwd)/target"
target="${CARGO_TARGET_DIR:-$target}"
dir="$target/demo/$part"
lab="$target/debug/lab"
rke="$target/debug/rke-operator"
doing='nothing yet'

step() {
  doing=$*
  printf '\n== %s\n' "$*"
}

# Shows a command as you would type it, then runs it.
run() {
  local shown="$*"
  shown=${shown/#first /kubectl --kubeconfig kube_config_first.yml }
  shown=${shown/#second /kubectl --kubeconfig second.kubeconfig }
  shown=${shown/#rke /rke-operator }
  printf '$ %s\n' "${shown//"$dir/"/}"
  "$@"
}

# Builds belong to you; networks, disks and the lab's keys to root.
as_root=(env)
if [[ $(id -u) != 0 ]]; then
  as_root=(sudo '--preserve-env=XDG_CACHE_HOME,LAB_REGISTRY' env "PATH=$PATH")
fi
root() { "${as_root[@]}" "$@"; }

lab() { root "$lab" "$@"; }
# HOME decides whose known_hosts are read: the lab's, not yours.
rke() { root env "HOME=$dir" "$rke" "$@"; }
kubectl() { root "$kubectl" "$@"; }
first() { kubectl --kubeconfig "$dir/kube_config_first.yml" "$@"; }
second() { kubectl --kubeconfig "$dir/second.kubeconfig" "$@"; }

# One line of what `lab status` says about this lab.
of_lab() {
  lab status | awk -v lab="lab $name:" -v word="  $1 " '
    index($0, "lab ") == 1 { on = index($0, lab) == 1 }
    on && index($0, word) == 1 { print substr($0, length(word) + 1); exit }'
}

# What a node's user can see of what runs on it; mounts that Docker makes for itself are left out.
state_of() {
  # shellcheck disable=SC2016 # the node expands it
  lab ssh --name "$name" "$1" '
    docker ps --all --format "container {{.Names}}"
    docker volume ls --format "volume {{.Name}}"
    docker network ls --format "network {{.Name}}"
    ip -o link | awk "{ print \"link\", \$2 }" | sed "s/@.*//"
    ip route | sed "s/^/route /"
    awk "{ print \"mount\", \$2 }" /proc/mounts | grep -v " /run/docker/" | grep -E "kubelet|netns|/etc/kubernetes" || true
    ls -d /etc/kubernetes /etc/cni /etc/cni/net.d /opt/cni /opt/cni/bin /opt/rke /var/lib/etcd \
      /var/lib/kubelet /var/lib/cni /etc/containerd/* /etc/systemd/system/containerd.service.d/* 2>/dev/null
    true' | tr -d '\r' | sort
}
