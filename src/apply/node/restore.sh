# The folders of etcd's data while a snapshot is restored. $1: the member's folder; $2: the number of the restore; $3:
# ready, before the new data are made of a snapshot | own, before they are made of the member's own | aside, for what is
# there | place, for what was made | back, for what was set aside; $4 and $5: the snapshot and its hash. What was there is
# never deleted. It stays on its file system: where the folder is a mount point, everything is in folders on that disk,
# which etcd does not look into.
set -eu
umask 077
folder=$1 epoch=$2
# As mountinfo writes it.
real=$(readlink -f "$folder" | sed 's/\\/\\134/g; s/ /\\040/g; s/	/\\011/g')
prefix=$folder.
if REAL=$real awk '$5 == ENVIRON["REAL"] { found = 1 } END { exit !found }' /proc/self/mountinfo; then
  prefix=$folder/
fi
before=${prefix}before-$epoch
new=${prefix}restore-$epoch
restored=$before/.restored
inside() {
  find "$folder/" -mindepth 1 -maxdepth 1 ! -name lost+found ! -name 'removed-*' ! -name 'before-*' \
    ! -name 'restore-*' ! -name 'torn-*' ! -name 'back-*' "$@"
}
# What is in the folder goes where nothing of it is used again.
away() {
  if [ -d "$folder" ] && [ -n "$(inside -print -quit)" ]; then
    torn=${prefix}torn-$epoch-$(date +%s)
    mkdir -p "$torn"
    inside -exec mv -t "$torn" {} +
  fi
}
into_the_folder() {
  mkdir -p "$folder"
  find "$1/" -mindepth 1 -maxdepth 1 -exec mv -t "$folder" {} +
  rmdir "$1"
}
# Room for data that are made of $1 bytes. What a run has made that was ended is made again: no etcd has used it.
room() {
  rm -rf "$new"
  mkdir -p "$(dirname "$new")"
  needed=$(($1 * 3 / 2048 + 70000))
  free=$(df -Pk "$(dirname "$new")" | tail -n 1 | awk '{ print $4 }')
  if [ "$free" -lt "$needed" ]; then
    echo "rke-operator: full $free $needed"
    exit 0
  fi
}
case $3 in
own)
  if [ -e "$restored" ]; then
    echo 'rke-operator: done'
    exit 0
  fi
  database=$folder/snap/db
  [ -f "$database" ] || database=$before/snap/db
  if [ ! -f "$database" ]; then
    echo 'rke-operator: gone'
    exit 0
  fi
  room "$(stat -c %s "$database")"
  echo "rke-operator: ready $new $database"
  ;;
ready)
  if [ -e "$restored" ]; then
    echo 'rke-operator: done'
    exit 0
  fi
  if [ ! -f "$4" ]; then
    echo 'rke-operator: gone'
    exit 0
  fi
  size=$(stat -c %s "$4")
  told=$(tail -c 32 "$4" | od -An -v -tx1 | tr -d ' \n')
  found=$(head -c "$((size - 32))" "$4" | sha256sum | cut -d ' ' -f 1)
  if [ $((size % 512)) -ne 32 ] || [ "$told" != "$found" ] || [ "$told" != "$5" ]; then
    echo 'rke-operator: another'
    exit 0
  fi
  room "$size"
  echo "rke-operator: ready $new"
  ;;
aside)
  if [ -d "$before" ]; then
    exit 0
  fi
  below=$(REAL=$real/ awk '
    substr($5, 1, length(ENVIRON["REAL"])) == ENVIRON["REAL"] { print $5 }' /proc/self/mountinfo)
  if [ -n "$below" ]; then
    echo "$below" | sed 's/^/rke-operator: below /'
    exit 0
  fi
  mkdir -p "$before.part"
  [ ! -d "$folder" ] || inside -exec mv -t "$before.part" {} +
  mv "$before.part" "$before"
  ;;
place)
  if [ -e "$restored" ]; then
    exit 0
  fi
  [ -d "$before" ] && [ -f "$new/member/snap/db" ]
  mkdir -p "$folder"
  # Half of what a run that was ended moved here.
  away
  mv "$new/member/snap" "$new/member/wal" "$folder/"
  sync
  touch "$restored"
  sync "$restored"
  rmdir "$new/member" "$new"
  ;;
back)
  back=${prefix}back-$epoch
  # Not all of it was moved yet.
  [ ! -d "$before.part" ] || into_the_folder "$before.part"
  if [ -d "$before" ]; then
    away
    rm -f "$restored"
    mv "$before" "$back"
  fi
  [ ! -d "$back" ] || into_the_folder "$back"
  # It was made for this restore, and no etcd has used it.
  rm -rf "$new"
  ;;
esac
