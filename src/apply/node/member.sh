# Looks into the folder of a member of etcd ($1), or moves what is in it aside: data of a member that
# etcd no longer knows are never used again and never deleted. $2: look | aside.
set -eu
folder=$1
if [ ! -d "$folder" ] || [ -z "$(ls -A "$folder")" ]; then
  echo 'rke-operator: empty'
  exit 0
fi
echo 'rke-operator: data'
[ "$2" = aside ] || exit 0
aside=$folder.removed-$(date +%s)
mkdir -m 0700 "$aside"
find "$folder" -mindepth 1 -maxdepth 1 -exec mv -t "$aside" {} +
