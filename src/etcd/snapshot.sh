# A snapshot of etcd in the folder $1 under the name $2. $3: before | after it is taken; $4: etcd's
# database. Snapshots hold every secret of the cluster: for root alone.
set -eu
umask 077
folder=$1 name=$2 new=$1/.rke-operator-new
case $3 in
before)
  mkdir -p "$folder"
  chmod 0700 "$folder"
  # Of a run that was ended.
  rm -f "$new" "$new.part"
  if [ -e "$folder/$name" ] || [ -e "$folder/$name.zip" ]; then
    echo 'rke-operator: taken'
    exit 0
  fi
  # As large as the database, and half as much again for what is written meanwhile.
  needed=$(($(stat -c %s "$4") * 3 / 2048 + 1024))
  free=$(df -Pk "$folder" | tail -n 1 | awk '{ print $4 }')
  if [ "$free" -lt "$needed" ]; then
    echo "rke-operator: full $free $needed"
    exit 0
  fi
  echo 'rke-operator: ready'
  ;;
after)
  trap 'rm -f "$new" "$new.part"' EXIT
  # etcd writes the SHA-256 of its pages behind them.
  size=$(stat -c %s "$new")
  if [ $((size % 512)) -ne 32 ]; then
    echo 'rke-operator: torn'
    exit 0
  fi
  told=$(tail -c 32 "$new" | od -An -v -tx1 | tr -d ' \n')
  found=$(head -c "$((size - 32))" "$new" | sha256sum | cut -d ' ' -f 1)
  if [ "$told" != "$found" ]; then
    echo 'rke-operator: torn'
    exit 0
  fi
  sync "$new"
  # A link is not made where a file is: nothing is ever replaced.
  if ! ln "$new" "$folder/$name" 2>/dev/null; then
    echo 'rke-operator: taken'
    exit 0
  fi
  sync "$folder"
  echo "rke-operator: saved $size $found"
  ;;
esac
