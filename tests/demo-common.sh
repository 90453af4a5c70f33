# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # who sources it sets `name`, `part` and `kubectl`, and reads `doing`
# What `make demo`, `make demo-day-two` and `make conformance` share: commands shown as you would type them, what is asked
# before anything is made, and the state of a node.
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
  shown=${shown/#cluster /kubectl --kubeconfig kube_config_cluster.yml }
  shown=${shown/#root /}
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
cluster() { kubectl --kubeconfig "$dir/kube_config_cluster.yml" "$@"; }
first() { kubectl --kubeconfig "$dir/kube_config_first.yml" "$@"; }
second() { kubectl --kubeconfig "$dir/second.kubeconfig" "$@"; }

# One line of what `lab status` says about this lab.
of_lab() {
  lab status | awk -v lab="lab $name:" -v word="  $1 " '
    index($0, "lab ") == 1 { on = index($0, lab) == 1 }
    on && index($0, word) == 1 { print substr($0, length(word) + 1); exit }'
}

# Asks before so many nodes are made; installs what is missing for them.
agree() {
  cat <<-TEXT
	This makes $1 Kubernetes nodes in containers on this machine, on a network of their own.
	It runs as root (or with sudo), starts Docker if it does not run, and keeps what it builds in
	${XDG_CACHE_HOME:-~root/.cache}. $2
	TEXT
  local packages
  packages=$(lab missing)
  if [[ -n $packages ]]; then echo "It installs these Debian packages: ${packages//$'\n'/ }"; fi
  if [[ ${YES:-} != 1 ]]; then
    read -r -p 'Go on? [y/n]: ' answer
    [[ $answer == y || $answer == Y ]] || {
      echo 'nothing was done'
      trap - EXIT
      exit 1
    }
  fi
  lab missing --install
}

# What a failure of a demo leaves.
tell_nodes() {
  if [[ -x $lab ]] && lab status 2>/dev/null | grep -q "^lab $name:"; then
    printf 'its nodes stand; take them away with: make lab-down NAME=%s\n' "$name"
  fi
}

# The address of a node.
address_of() {
  lab status | awk -v lab="lab $name:" -v node="$1" '
    index($0, "lab ") == 1 { on = index($0, lab) == 1 }
    on && $1 == node { print $2; exit }'
}

# The Service answers through a node's own port, with these words; one try more is allowed to each request.
serves() {
  local wanted=$1 address=$2 words=${3:-} answered=0
  for ((request = 0; request < wanted; request++)); do
    if curl --silent --fail --max-time 2 --retry 1 --retry-delay 0 --retry-all-errors \
      "http://$address:30080/" | grep -qF -- "$words"; then answered=$((answered + 1)); fi
  done
  echo "$answered of $wanted requests to http://$address:30080/ were answered"
  ((answered == wanted))
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
