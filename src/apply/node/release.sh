# Deletes rke-operator's own files on a node that is clean otherwise.
#   its files   --   folders that are empty by now
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  rm -f "$1"
  shift
done
shift
for folder in "$@"; do rmdir "$folder" 2>/dev/null; done
cri=/var/lib/containerd/io.containerd.grpc.v1.cri
if [ -d "$cri" ]; then
  find "$cri" -mindepth 1 -depth -type d -empty -delete 2>/dev/null
  rmdir "$cri" 2>/dev/null
fi
exit 0
