# A snapshot of etcd in the folder $1 under the name $2. $3: before | after it is taken; $4: etcd's
# database. look: what there is under that name; $4: the cluster's id, $5: where
# it would be restored. list: the sizes and names of what is there. end: the last $4 bytes of the zip of that name.
# unpack: what is in that zip behind the header at $4, $5 bytes, from which $6 bytes come; $7: what gzip has behind such
# data; $8: deflated | stored. Snapshots hold every secret of the cluster: for root alone.
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
list)
  files() {
    cd "$folder" 2>/dev/null || return 0
    for file in *; do
      [ -L "$file" ] || [ ! -f "$file" ] || printf '%s %s\n' "$(stat -c %s "$file")" "$file"
    done
  }
  echo "rke-operator: list $(files | base64 -w 0)"
  ;;
end)
  echo "rke-operator: end $(stat -c %s "$folder/$name.zip") $(tail -c "$4" "$folder/$name.zip" | base64 -w 0)"
  ;;
unpack)
  trap 'rm -f "$new" "$new.part"' EXIT
  rm -f "$new.part"
  needed=$(($6 / 1024 + 1024))
  free=$(df -Pk "$folder" | tail -n 1 | awk '{ print $4 }')
  if [ "$free" -lt "$needed" ]; then
    echo "rke-operator: full $free $needed"
    exit 0
  fi
  # The names in a local header are as long as two numbers in it say.
  lengths=$(od -An -tu2 -j "$(($4 + 26))" -N 4 "$folder/$name.zip")
  at=$4 packed=$5 bytes=$6 behind=$7 how=$8
  read -r first second <<EOF
$lengths
EOF
  data() { tail -c "+$((at + 31 + first + second))" "$folder/$name.zip" | head -c "$packed"; }
  if [ "$how" = stored ]; then
    data
  else
    {
      printf '\037\213\010\000\000\000\000\000\000\377'
      data
      printf '%b' "$behind"
    } | gzip -dc || touch "$new.part"
  fi | head -c "$((bytes + 1))" >"$new"
  if [ "$(stat -c %s "$new")" -ne "$bytes" ] || [ -e "$new.part" ]; then
    echo 'rke-operator: torn'
    exit 0
  fi
  sync "$new"
  ln "$new" "$folder/$name"
  echo 'rke-operator: unpacked'
  ;;
look)
  if [ ! -f "$folder/$name" ]; then
    [ -e "$folder/$name.zip" ] && echo 'rke-operator: zip' || echo 'rke-operator: gone'
    exit 0
  fi
  size=$(stat -c %s "$folder/$name")
  told=$(tail -c 32 "$folder/$name" | od -An -v -tx1 | tr -d ' \n')
  found=$(head -c "$((size > 32 ? size - 32 : 0))" "$folder/$name" | sha256sum | cut -d ' ' -f 1)
  if [ $((size % 512)) -ne 32 ] || [ "$told" != "$found" ]; then
    echo 'rke-operator: torn'
    exit 0
  fi
  # What is made of it, and what was there before, which is kept.
  needed=$((size * 3 / 2048 + 70000))
  # A machine that takes the place of another one has no data yet.
  at=$5
  while [ ! -e "$at" ]; do at=$(dirname "$at"); done
  free=$(df -Pk "$at" | tail -n 1 | awk '{ print $4 }')
  if [ "$free" -lt "$needed" ]; then
    echo "rke-operator: full $free $needed"
    exit 0
  fi
  names=other
  ! grep -qaF "$4" "$folder/$name" || names=own
  how=plain
  ! grep -qa 'k8s:enc:[a-z]*:v' "$folder/$name" || how=encrypted
  echo "rke-operator: whole $found $names $how"
  ;;
esac
