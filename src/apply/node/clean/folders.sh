# Folders that were not there before us; in those that were, only what we added.

# Configuration and addresses of other tools that use CNI.
is_of_others() {
  case $1 in
  # What is left in these after they were gone through.
  /etc/cni/net.d | /var/lib/cni/networks | /var/lib/cni/results) return 0 ;;
  esac
  case ${1##*/} in *podman* | *nerdctl*) return 0 ;; esac
  return 1
}

# A folder that other tools may share: what is theirs stays, and the folder with it.
remove_shared() {
  [ -d "$root$1" ] || return 0
  for entry in "$root$1"/* "$root$1"/.[!.]*; do
    [ -e "$entry" ] || [ -L "$entry" ] || continue
    entry=${entry#"$root"}
    is_of_others "$entry" || was_there "$entry" || remove_tree "$entry"
  done
  rmdir "$root$1" 2>/dev/null
}

# The results and addresses of our networks, where the folder was there before us.
remove_results() {
  results | while read -r file; do rm -f "$file"; done
  printf '%s' "$networks" | while IFS= read -r network; do
    case $network in '' | */*) ;; *) remove_tree "/var/lib/cni/networks/$network" ;; esac
  done
}

clean_folders() {
  if was_there /opt/cni/bin; then
    for file in "$root"/opt/cni/bin/*; do
      file=${file#"$root"}
      was_there "$file" || rm -f "$root$file"
    done
  fi
  # Who recorded what was there may not have been allowed to look into this one.
  for file in 10-flannel.conflist 10-canal.conflist 10-calico.conflist calico-kubeconfig; do
    was_there "/etc/cni/net.d/$file" || rm -f "$root/etc/cni/net.d/$file"
  done
  remove_results
  for path in /etc/cni/net.d /etc/cni /var/lib/cni/networks /var/lib/cni/results /var/lib/cni; do
    was_there "$path" || remove_shared "$path"
  done
  for path in /opt/cni/bin /opt/cni /run/rke-operator /run/flannel /run/calico /var/lib/calico \
    /var/log/containers /var/log/kube-audit /var/log/pods /usr/libexec/kubernetes; do
    was_there "$path" || remove_tree "$path"
  done
  own_folders clean
  for file in "$root"/etc/containerd/certs.d/*/hosts.toml; do
    grep -qs '^# Written by rke-operator' "$file" && rm -f "$file" && rmdir "${file%/*}" 2>/dev/null
  done
  for file in "$root"/etc/docker/certs.d/*/rke-operator.crt; do
    [ -f "$file" ] && rm -f "$file" && rmdir "${file%/*}" 2>/dev/null
  done
  rm -f "$root/etc/modules-load.d/rke-operator.conf" "$root/etc/sysctl.d/99-rke-operator.conf"
  rm -f "$root/run/rke-operator-containerd.result" "$root/run/rke-operator-containerd.result.new"
  for folder in /etc/containerd/certs.d /etc/modules-load.d /etc/sysctl.d; do
    was_there "$folder" || rmdir "$root$folder" 2>/dev/null
  done
}

# Those were empty (mount points, say), or the claim would have been refused.
own_folders() {
  for path in /var/lib/etcd /var/lib/kubelet /etc/kubernetes; do
    keep=
    if was_there "$path" || [ -L "$root$path" ]; then keep=keep; fi
    case $1 in clean) remove_tree "$path" $keep ;; left) left_of_tree "$path" $keep ;; esac
  done
}

# cgroups of pods, leaves first.
clean_cgroups() {
  timeout 30 systemctl stop kubepods.slice 2>/dev/null
  find "$root/sys/fs/cgroup" -depth -type d \( -path '*/kubepods/*' -o -name kubepods \) -exec rmdir {} \; 2>/dev/null
}

# Sysctls as they were.
restore_sysctls() {
  printf '%s' "$sysctls" | while IFS= read -r setting; do
    name=${setting%%=*} value=${setting#*=}
    file=$root/proc/sys/$(echo "$name" | tr . /)
    now=$(cat "$file" 2>/dev/null) || continue
    [ "$(echo $now)" = "$(echo $value)" ] || echo "$value" 2>/dev/null >"$file"
  done 2>/dev/null
}
