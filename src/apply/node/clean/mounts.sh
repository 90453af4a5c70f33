# Mounts of pods. Only what kubelet and containerd's CRI mount for pods is ours; kubelet's root
# itself may be an administrator's disk, and any other mount below it is one's own.

# The folders in which every mount is a pod's.
pod_mount_folders() {
  if kubelet=$(real_path /var/lib/kubelet); then
    echo "$kubelet/pods"
    echo "$kubelet/plugins"
  fi
  if state=$(real_path "$ctr_state"); then
    echo "$state/io.containerd.grpc.v1.cri"
    echo "$state/io.containerd.runtime.v2.task/k8s.io"
  fi
}

# A server that is gone must not hang us: first as usual, then by force, then out of the tree only.
# `-c`: the path is not looked at.
unmount() {
  timeout -k 2 10 umount -c "$1" 2>/dev/null && return
  timeout -k 2 10 umount -c -f "$1" 2>/dev/null && return
  timeout -k 2 10 umount -c -l "$1" 2>/dev/null
}

clean_mounts() {
  pod_mount_folders | while read -r folder; do
    # A mount point may carry more than one mount.
    for _ in 1 2 3; do
      mounts=$(mounts_below "$folder") || break
      [ -n "$mounts" ] || break
      echo "$mounts" | while read -r mount; do unmount "$(unescape "$mount")"; done
    done
  done
}

left_of_mounts() {
  pod_mount_folders | while read -r folder; do
    case $folder in */plugins | */pods) continue ;; esac # told with kubelet's root
    mounts=$(mounts_below "$folder") || { mark unknown mounts "/proc/self/mountinfo cannot be read"; break; }
    for mount in $mounts; do mark left mount "$mount"; done
  done
}

# What CRI itself remembers of pods: with CRI off again it would not clear up after a restart.
clean_cri() {
  for folder in "$ctr_root" "$ctr_state"; do
    for kind in containers sandboxes; do
      remove_tree "$folder/io.containerd.grpc.v1.cri/$kind" keep
    done
  done
}
