# Changes the owner of etcd's data ($1, the folder; below it `member`) to the user that etcd runs as ($2, uid:gid). It
# changes neither the targets of links nor other files in the folder.
set -eu
folder=$1
owner=$2
chown "$owner" "$folder"
[ ! -d "$folder/member" ] || chown -R -h "$owner" "$folder/member"
