# Gives etcd's data ($1, the folder; below it `member`) to whom it runs as ($2, uid:gid). Nothing that a link leads to, and
# nothing else that lies in the folder.
set -eu
folder=$1
owner=$2
chown "$owner" "$folder"
[ ! -d "$folder/member" ] || chown -R -h "$owner" "$folder/member"
