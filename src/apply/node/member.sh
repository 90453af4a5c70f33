# Looks into the folder of a member of etcd ($1), or moves what is in it aside: data of a member that
# etcd no longer knows are never used again and never deleted. They stay on their file system: where the
# folder is a mount point, they go into a folder on that disk, which etcd does not look into. While
# anything is mounted below, nothing is moved. $2: look | aside.
set -eu
folder=$1
inside() {
  find "$folder/" -mindepth 1 -maxdepth 1 ! -name lost+found ! -name 'removed-*' ! -name 'before-*' \
    ! -name 'restore-*' ! -name 'torn-*' ! -name 'back-*' "$@"
}
[ ! -d "$folder" ] || found=$(inside -print -quit)
if [ -z "${found-}" ]; then
  echo 'rke-operator: empty'
  exit 0
fi
echo 'rke-operator: data'
[ "$2" = aside ] || exit 0
# As mountinfo writes it.
real=$(readlink -f "$folder" | sed 's/\\/\\134/g; s/ /\\040/g; s/	/\\011/g')
below=$(REAL=$real awk '
  BEGIN { real = ENVIRON["REAL"] "/" }
  substr($5, 1, length(real)) == real { print $5 }' /proc/self/mountinfo)
if [ -n "$below" ]; then
  echo "$below" | sed 's/^/rke-operator: below /'
  exit 0
fi
aside=$folder.removed-$(date +%s)
REAL=$real awk '$5 == ENVIRON["REAL"] { found = 1 } END { exit !found }' /proc/self/mountinfo &&
  aside=$folder/removed-$(date +%s)
mkdir -m 0700 "$aside"
inside -exec mv -t "$aside" {} +
