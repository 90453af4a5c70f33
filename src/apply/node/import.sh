# Puts an image of a bundle into containerd's namespace `k8s.io` and keeps it there: pinned, because no registry has it once
# kubelet has collected it. Before the first import, it records the images that are there already: `remove` keeps them.
#   $1 the archive, deleted   $2 the image, as containerd names it   $3 its platform
#   $4 the record of what was there, $5 the list of what came so; both empty: the node is no cluster's
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
k8s() { timeout -k 5 "$limit" ctr --namespace k8s.io "$@"; }
limit=50

# Gone from the folder, whatever comes of it.
exec 3<"$1" && rm -f "$1" || exit 1
if [ -n "$4" ] && [ ! -e "$4" ]; then
  tasks=$(k8s tasks ls -q) && images=$(k8s images ls -q) || exit 1
  # Where pods run rke-operator put the images there.
  [ -z "$tasks" ] || images=
  (umask 077 && mkdir -p "${4%/*}" && printf '%s' "$images" >"$4.new" && mv "$4.new" "$4") || exit 1
fi
limit=1500
k8s images import --platform "$3" - <&3 >/dev/null || exit
limit=50
names=$(k8s images ls -q) || exit
if ! printf '%s\n' "$names" | grep -qxF -- "$2"; then
  echo "containerd has no image $2 after the import"
  exit 1
fi
k8s images label "$2" io.cri-containerd.pinned=pinned >/dev/null || exit
[ -z "$5" ] || grep -qsxF -- "$2" "$5" || printf '%s\n' "$2" >>"$5"
