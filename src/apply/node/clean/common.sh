# Cleans the node. Each file here has the functions for one kind of resource; `main.sh` calls them
# in order. Every function may be repeated. What to keep comes as arguments, which are data and
# never code: nothing is put into this text, and nothing is evaluated.
#
# A line for the caller begins with the mark, so that no other output can be taken for it:
#   left KIND WHAT      it should be gone and is not
#   unknown KIND WHY    it could not be checked: that is no absence
#   done                the end was reached
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
LC_ALL=C
export PATH LC_ALL
nl='
'
mark() { printf '@@rke-operator %s\n' "$*"; }

root= networks= kept_images= ctr_root=/var/lib/containerd ctr_state=/run/containerd rules_awk= only=
before=$nl sysctls=
while [ $# -gt 1 ]; do
  case $1 in
  --root) root=$2 ;;
  --network) networks=$networks$2$nl ;;
  --kept-images) kept_images=$2 ;;
  --containerd-root) ctr_root=$2 ;;
  --containerd-state) ctr_state=$2 ;;
  --rules) rules_awk=$2 ;;
  --before) before=$before$2$nl ;;
  --sysctl) sysctls=$sysctls$2$nl ;;
  --only) only="$only $2" ;;
  *) mark unknown argument "$1" && exit 2 ;;
  esac
  shift 2
done

# Did this path, or something below it, exist before rke-operator came?
was_there() { case $before in *"$nl$1$nl"* | *"$nl$1/"*) return 0 ;; esac; return 1; }

# The real path, with links resolved. Fails when it does not exist, or when a link leads to a
# place that cannot be a folder of the cluster (`/`, `/home`).
real_path() {
  resolved=$(readlink -f "$root$1" 2>/dev/null) && [ -e "$resolved" ] || return 1
  real_root=
  [ -z "$root" ] || real_root=$(readlink -f "$root")
  case ${resolved#"$real_root"} in /*/*) echo "$resolved" ;; *) return 1 ;; esac
}

# The mount points strictly below a real path, as mountinfo writes them (octal escapes), deepest
# first. Fails when mountinfo cannot be read: then nothing may be deleted.
mounts_below() {
  table=$(cat /proc/self/mountinfo 2>/dev/null) && [ -n "$table" ] || return 1
  FOLDER=$(escape "$1") awk '
    BEGIN { folder = ENVIRON["FOLDER"] "/" }
    substr($5, 1, length(folder)) == folder { print $5 }' <<END | sort -r
$table
END
}

# Is this real path a mount point itself?
is_mount_point() {
  FOLDER=$(escape "$1") awk '
    BEGIN { folder = ENVIRON["FOLDER"] }
    $5 == folder { found = 1 }
    END { exit !found }' /proc/self/mountinfo
}

# A path as mountinfo writes it, and back.
escape() { printf '%s' "$1" | sed 's/\\/\\134/g; s/ /\\040/g; s/	/\\011/g'; }
unescape() { printf '%b' "$(printf '%s' "$1" | sed 's/\\\([0-7][0-7][0-7]\)/\\0\1/g')"; }

# Deletes a folder and its content; only the content when the folder must stay, because it existed
# before rke-operator came, or because it is a mount point (an administrator's own disk). A link is
# removed and not followed, unless it must stay: then it leads to the folder. Reads mountinfo just
# before; while anything is mounted below, nothing is deleted.
#   $1 path   $2 `keep`: the folder itself stays
remove_tree() {
  [ -e "$root$1" ] || [ -L "$root$1" ] || return 0
  if [ -L "$root$1" ] && [ "${2-}" != keep ]; then
    rm -f "$root$1"
    return
  fi
  real=$(real_path "$1") || return 1
  below=$(mounts_below "$real") && [ -z "$below" ] || return 1
  if [ ! -d "$real" ]; then
    [ "${2-}" = keep ] || is_mount_point "$real" || rm -f "$real"
  elif [ "${2-}" = keep ] || is_mount_point "$real"; then
    find "$real" -mindepth 1 -maxdepth 1 ! -name lost+found \
      -exec rm -rf --one-file-system {} + 2>/dev/null
  else
    rm -rf --one-file-system "$real"
  fi
}

# Reports why a folder is not clean: mounts below it, or its content.
left_of_tree() {
  [ -e "$root$1" ] || return 0
  real=$(real_path "$1") || { mark unknown folder "$1 leads to a place that is not deleted"; return 0; }
  below=$(mounts_below "$real") || { mark unknown mounts "/proc/self/mountinfo cannot be read"; return 0; }
  if [ -n "$below" ]; then
    for mount in $below; do mark left mount "$mount"; done
  elif [ "${2-}" != keep ] && ! is_mount_point "$real"; then
    mark left folder "$1"
  elif [ -d "$real" ]; then
    inside=$(find "$real" -mindepth 1 -maxdepth 1 ! -name lost+found 2>&1 | head -n 1)
    [ -z "$inside" ] || mark left folder "$1"
  fi
}
