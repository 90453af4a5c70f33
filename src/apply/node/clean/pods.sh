# Pods: tasks, containers, snapshots, images and leases of containerd's namespace `k8s.io`.

# The record of the images that were in `k8s.io` before rke-operator imported its first one.
kept_images=$root$kept_images
# What tells our network's traces from those of others, kept until they are gone.
traces=$root/run/rke-operator-clean

k8s() { timeout -k 5 60 ctr --connect-timeout 5s --timeout 20s --namespace k8s.io "$@"; }

has_containerd() { [ -S "$root/run/containerd/containerd.sock" ] || [ -S "$root$ctr_state/containerd.sock" ]; }

# 0: the namespace exists · 1: it does not · 2: it could not be checked.
k8s_exists() {
  has_containerd || return 1
  namespaces=$(timeout -k 5 20 ctr --connect-timeout 5s --timeout 10s namespaces ls -q 2>/dev/null) || return 2
  echo "$namespaces" | grep -qx k8s.io
}

# Everything of one kind, twenty to a call: ctr goes on after a name that it cannot remove.
k8s_rm() {
  kind=$1 && shift
  k8s "$kind" ls -q 2>/dev/null | xargs -r -n 20 timeout -k 5 60 \
    ctr --connect-timeout 5s --timeout 20s --namespace k8s.io "$kind" rm "$@" >/dev/null 2>&1
}

# Ids and network namespaces of the pods, before containerd forgets them.
remember_traces() {
  for id in $(k8s containers ls -q 2>/dev/null); do
    echo "id $id"
    k8s containers info "$id" 2>/dev/null | grep -o '/run/netns/[A-Za-z0-9_.-]*' |
      sort -u | sed 's/^/netns /'
  done >>"$traces"
}

# A record that cannot be read must not read as an empty one: then images stay.
has_kept_images() { [ -e "$kept_images" ] && { [ ! -r "$kept_images" ] || [ -s "$kept_images" ]; }; }

remove_images() {
  if ! has_kept_images; then
    k8s_rm images --sync
    return
  fi
  k8s images ls -q 2>/dev/null | grep -vxF -f "$kept_images" |
    xargs -r -n 20 timeout -k 5 60 \
      ctr --connect-timeout 5s --timeout 20s --namespace k8s.io images rm --sync >/dev/null 2>&1
}

# Every task but these.
end_tasks() {
  others() { k8s tasks ls -q 2>/dev/null | grep -vxF -e "${but:-none}"; }
  but=$1
  for id in $(others); do k8s tasks kill --all --signal SIGKILL "$id" 2>/dev/null; done
  # containerd's CRI may be quicker with one than we are: what counts is that none is left.
  tries=0
  while tasks=$(others) && [ -n "$tasks" ] && [ "$tries" -lt 50 ]; do
    for id in $tasks; do k8s tasks rm --force "$id" >/dev/null 2>&1; done
    tries=$((tries + 1))
    sleep 0.1
  done
}

# A shim ends a little after its last task. One that goes on when there is no task left was forgotten
# by containerd, which was killed or cut short while it started or ended a pod: nothing else ends it.
end_shims() {
  tasks=$(k8s tasks ls -q 2>/dev/null) && [ -z "$tasks" ] || return 0
  wait_for_shims 20
  for shim in $shims; do
    echo "shim $shim is left without a task: $(tr '\0' ' ' <"$root/proc/$shim/cmdline")"
    kill -KILL $(cat "$root/proc/$shim/task"/*/children 2>/dev/null) "$shim" 2>/dev/null
  done
}

clean_pods() {
  k8s_exists || return 0
  remember_traces
  # From containerd 2 on a pod's shim ends with its sandbox, once its containers are gone, and never
  # again when the sandbox's own task went before it. Before containerd 2 there are none, or ctr does
  # not know the word.
  sandboxes=$(k8s sandboxes ls 2>/dev/null | awk 'NR > 1 { print $1 }')
  end_tasks "$sandboxes"
  for id in $sandboxes; do k8s sandboxes rm --force "$id" >/dev/null 2>&1; done
  end_tasks ""
  end_shims
  k8s_rm containers
  # One by one: of these ctr stops at the first that it cannot remove.
  k8s leases ls -q 2>/dev/null | while read -r id; do k8s leases rm "$id" >/dev/null 2>&1; done
  remove_images
  # What images of others need is containerd's to collect, not ours to delete.
  has_kept_images && return
  # Children before parents: a parent goes in a later round than its last child.
  rounds=0
  while left=$(k8s snapshots ls 2>/dev/null | awk 'NR > 1 { print $1 }') && [ -n "$left" ] && [ "$rounds" -lt 30 ]; do
    for key in $left; do k8s snapshots rm "$key" >/dev/null 2>&1; done
    rounds=$((rounds + 1))
  done
  k8s_rm content
  timeout -k 5 20 ctr --connect-timeout 5s --timeout 10s namespaces rm k8s.io >/dev/null 2>&1
}

left_of_pods() {
  k8s_exists
  case $? in
  0)
    if tasks=$(k8s tasks ls -q 2>/dev/null); then
      for id in $tasks; do mark left task "$id"; done
    else
      mark unknown tasks "ctr does not list containerd's tasks"
    fi
    ;;
  2) mark unknown tasks "ctr does not list containerd's namespaces" ;;
  esac
  # A pod's process outlives containerd: its shim is named with the namespace.
  wait_for_shims 10
  for shim in $shims; do mark left shim "$shim"; done
}

# Until there are none, or so often 0.3 s.
wait_for_shims() {
  tries=0
  while shims=$(shims) && [ -n "$shims" ] && [ "$tries" -lt "$1" ]; do
    tries=$((tries + 1))
    sleep 0.3
  done
}

# Another containerd, such as that of k3s, has another address.
shims() {
  for file in $(grep -lszx -e 'k8s\.io' "$root"/proc/[0-9]*/cmdline 2>/dev/null); do
    grep -qsz 'containerd-shim' "$file" || continue
    grep -qszx -e '-address' "$file" && ! grep -qszxF -e "$root/run/containerd/containerd.sock" \
      -e "$root$ctr_state/containerd.sock" "$file" && continue
    file=${file%/cmdline}
    echo "${file##*/}"
  done
}
