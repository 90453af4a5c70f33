# Measures, as root, how long the disk takes for what etcd writes: 100 writes, each waited for, on the disk that has, or
# will have, the folder of the argument `disk=FOLDER`. Nothing is left on the node: the one file that is written has no
# name.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
LC_ALL=C
export PATH LC_ALL

echo @@disk
disk() {
  place=$1
  until [ -d "$place" ]; do place=$(dirname "$place"); done
  file=$(mktemp "$place/.rke-operator.XXXXXX" 2>/dev/null) || return 0
  exec 3>>"$file"
  rm -f "$file"
  # etcd writes where room was made before.
  dd if=/dev/zero of=/dev/fd/3 bs=2300 count=100 conv=notrunc,fsync 2>/dev/null || return 0
  for at in $(seq 0 99); do
    dd if=/dev/zero of=/dev/fd/3 bs=2300 count=1 seek="$at" oflag=dsync conv=notrunc 2>&1 |
      sed -n 's/.* copied, \([0-9.e-]*\) s.*/\1/p'
  done
  exec 3>&-
}
each disk disk "$@"

