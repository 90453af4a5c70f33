# Puts the pause image into containerd's namespace `k8s.io` and keeps it there. Before the first
# import, it records the images that are there already: `remove` keeps them.
#   $1 the archive, deleted   $2 the image   $3 the record   $4 its platform, may be empty
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
k8s() { timeout -k 5 50 ctr --namespace k8s.io "$@"; }

if [ ! -e "$3" ]; then
  tasks=$(k8s tasks ls -q) && images=$(k8s images ls -q) || { rm -f "$1"; exit 1; }
  # Where pods run, the images are the cluster's already.
  [ -z "$tasks" ] || images=
  umask 077
  printf '%s' "$images" >"$3.new" && mv "$3.new" "$3" || exit 1
fi
# The archive is deleted before its image exists: a run that sees the image need not look for the archive.
exec 3<"$1" && rm -f "$1" || exit 1
k8s images import ${4:+--platform "$4"} - <&3 >/dev/null || exit
k8s images ls -q | grep -F -- "$2" | while read -r name; do
  k8s images label "$name" io.cri-containerd.pinned=pinned >/dev/null
done
