# Reads what an unprivileged user may know of a node. Writes nothing. One `@@name` line opens
# each section. Each argument is `kind=word`: what to look at.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
LC_ALL=C
export PATH LC_ALL

# Units and their states, all in one question: systemd takes its time for each.
switches=
add_switch() { switches="$switches $1"; }
each switch add_switch "$@"
states=$(
  set -- $switches firewalld.service NetworkManager.service nm-cloud-setup.timer nm-cloud-setup.service
  systemctl is-active "$@" 2>/dev/null | for unit; do
    read -r state && echo "$unit=$state"
  done
)
state() {
  after=${states#*"$1="}
  [ "$after" = "$states" ] || echo "${after%%[!a-z]*}"
}
is_active() { [ "$(state "$1")" = active ]; }
shown=$(systemctl show containerd.service docker.service -p LoadState -p UnitFileState \
  -p WantedBy -p RequiredBy -p ExecMainStartTimestampMonotonic -p Environment -p BindsTo \
  -p Requires 2>/dev/null)
# An empty line is between two units.
between='

'

# A change of containerd's configuration outlives the run that began it.
echo @@switching
switching() { is_active "$1" && echo yes; }
each switch switching "$@"

echo @@clock; date +%s
echo @@hostname; uname -n
echo @@kernel; uname -r
echo @@os; (. /etc/os-release && echo "$PRETTY_NAME") 2>/dev/null
echo @@distribution; (. /etc/os-release && echo "$ID $ID_LIKE") 2>/dev/null
echo @@machine-id; cat /etc/machine-id 2>/dev/null
echo @@boot; boot
# As sd_booted(3): process 1 is hidden where /proc has `hidepid`.
echo @@init; [ -d /run/systemd/system ] && echo systemd
echo @@addresses
ip -o addr show scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4 }'
# Each address with its interface, and each interface with its MTU.
echo @@interfaces
ip -o addr show scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $2, $4 }' | head -n 1000
echo @@mtu
ip -o link show 2>/dev/null | awk '{
  sub(":$", "", $2); sub("@.*", "", $2)
  for (i = 3; i < NF; i++) if ($i == "mtu") print $2, $(i + 1) }' | head -n 1000
echo @@routes
for family in 4 6; do
  ip -o "-$family" route show 2>/dev/null | grep -v -e '^default' -e '^unreachable' | head -n 1000
done
# What the name by which the others dial this node means to the node itself.
echo @@resolved
resolve() { getent ahosts "$1" 2>/dev/null | awk '{ print $1 }' | sort -u | head -n 20; }
each resolve resolve "$@"

echo @@route-address
ip -o route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([^ ]*\).*/\1/p'

echo @@containerd-socket
[ -S /run/containerd/containerd.sock ] && echo yes
echo @@ctr; command -v ctr
echo @@containerd-unit
unit=${shown%%"$between"*}
boots='-e ^LoadState= -e ^UnitFileState= -e ^WantedBy= -e ^RequiredBy='
printf '%s\n' "$unit" | grep $boots -e '^ExecMainStartTimestampMonotonic='

# How the unit starts it without our drop-in: continued lines are one, an empty one takes back.
drop_ins=:
add_drop_in() { drop_ins=$drop_ins$1:; }
each drop-in add_drop_in "$@"
command=$(systemctl cat containerd.service 2>/dev/null | OURS=$drop_ins awk '
  /^# \// { ours = index(ENVIRON["OURS"], ":" substr($0, 3) ":"); next }
  ours { next }
  { line = line $0; if (sub(/\\$/, " ", line)) next }
  line ~ /^[ \t]*ExecStart[ \t]*=/ { sub(/^[^=]*=[ \t]*/, "", line); command = line }
  { line = "" }
  END { print command }')
environment=$(printf '%s\n' "$unit" | sed -n 's/^Environment=//p')
echo @@containerd-command; printf '%s\n' "$command"
echo @@containerd-environment; printf '%s\n' "$environment"

# The configuration that it is given, a variable of the unit looked up.
set -f
config= before=
for word in $command; do
  case $before in -c | --config) config=$word ;; esac
  case $word in --config=*) config=${word#*=} ;; esac
  before=$word
done
name=
case $config in
'${'*'}') name=${config#??} name=${name%?} ;;
'$'*) name=${config#?} ;;
esac
if [ -n "$name" ]; then
  config=
  for pair in $environment; do
    case $pair in "$name="*) config=${pair#*=} ;; esac
  done
fi
program=${command%%[ 	]*}
set +f
[ -x "$program" ] || program=containerd
[ -n "$config" ] || config=/etc/containerd/config.toml
echo @@containerd-version
"$program" --version 2>/dev/null &
[ -e "$config" ] && config=--config=$config || config=
dump=$("$program" ${config:+"$config"} config dump 2>/dev/null)
wait
echo @@containerd-dump; printf '%s\n' "$dump"
echo @@docker-unit
printf '%s\n' "${shown#*"$between"}" | grep $boots -e '^BindsTo=' -e '^Requires='

# A name server on the node's loopback cannot be reached from a pod: then the file that names
# those behind it.
local_only() {
  awk '$1 == "nameserver" { n++; if ($2 !~ /^(127\.|::1)/) far++ } END { exit !(n && !far) }' "$1" 2>/dev/null
}
echo @@resolv-conf
resolv=/etc/resolv.conf loops=
if local_only "$resolv"; then
  loops=yes
  for file in /run/systemd/resolve/resolv.conf /run/NetworkManager/no-stub-resolv.conf \
    /run/NetworkManager/resolv.conf /run/dnsmasq/resolv.conf /run/resolvconf/resolv.conf; do
    [ -r "$file" ] && grep -q '^nameserver' "$file" && ! local_only "$file" &&
      resolv=$file loops= && break
  done
fi
echo "$resolv"
echo @@resolv-loops; echo "$loops"

echo @@listening
awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null | sort -u

echo @@listeners
ss -Hltn --cgroup 2>/dev/null | awk '
  match($0, /cgroup:\/[^ ]+/) {
    cgroup = substr($0, RSTART, RLENGTH); sub(/.*\//, "", cgroup)
    port = $4; sub(/.*:/, "", port)
    if (cgroup != "") print port, cgroup
  }' | sort -u

echo @@paths
exists() { [ -e "$1" ] && printf '%s\n' "$1"; }
each path exists "$@"
for path in /opt/cni/bin/* /etc/cni/net.d/*; do exists "$path"; done

echo @@docker-certs
docker_certs() { for path in "$1"/*/*.crt; do exists "$path"; done; }
each docker-certs docker_certs "$@"

# A folder below which there is no file is nobody's data: a disk that waits for it, a folder with the
# mount points of such disks. What cannot be looked into is not known.
empty= unreadable=
has_files() {
  [ -d "$1" ] || return 0
  found=$(timeout 5 find "$1/" -mindepth 1 -name lost+found -prune -o ! -type d -print -quit 2>/dev/null)
  whole=$?
  [ -z "$found" ] || return 0
  if [ "$whole" = 0 ]; then empty="$empty$1
"; else unreadable="$unreadable$1
"; fi
}
each path has_files "$@"
echo @@empty; printf '%s' "$empty"
echo @@unreadable; printf '%s' "$unreadable"

# The file with the cluster's id that a claim writes where every user may read it.
echo @@cluster-id
show() { cat "$1" 2>/dev/null; }
each cluster-id show "$@"
echo @@ours
each ours exists "$@"
# Kubernetes of others: a folder of static manifests that only root may look into may hold some.
echo @@foreign
each foreign exists "$@"
manifests() {
  for path in "$1"/*; do exists "$path"; done
  [ -d "$1" ] && ! { [ -r "$1" ] && [ -x "$1" ]; } && echo "$1"
}
each manifests manifests "$@"
echo @@mounts
mounts_below() {
  FOLDER=$(readlink -f "$1" 2>/dev/null) awk '
    BEGIN { folder = ENVIRON["FOLDER"] "/" }
    folder != "/" && substr($5, 1, length(folder)) == folder { print $5 }' /proc/self/mountinfo 2>/dev/null |
    head -n 100
}
each mounts mounts_below "$@"
# Where /proc hides the processes of others, the cgroups tell which pods have any.
echo @@pods
if [ -r /proc/1/cmdline ]; then
  grep -lszx -e 'k8s\.io' /proc/[0-9]*/cmdline 2>/dev/null |
    xargs -r grep -lsz -e containerd-shim 2>/dev/null | wc -l
else
  for top in /sys/fs/cgroup /sys/fs/cgroup/pids; do
    find "$top"/kubepods* "$top"/*/*kubepods* -maxdepth 2 -type d \
      \( -name 'pod*' -o -name '*-pod*.slice' \) 2>/dev/null
  done | sort -u | while read -r pod; do
    read -r tasks 2>/dev/null <"$pod/pids.current" && [ "$tasks" != 0 ] && echo "$pod"
  done | wc -l
fi

# Which of these folders are on a file system that is mounted read-only, or from which nothing may be executed, and where
# that is mounted. What does not exist yet will be where the folder above it is; of two mounts at one place the last counts.
echo @@restricted
restricted() {
  place=$1
  until [ -e "$place" ]; do place=${place%/*}; [ -n "$place" ] || place=/; done
  ASKED=$1 PLACE=$(readlink -f "$place" 2>/dev/null) awk '
    BEGIN { place = ENVIRON["PLACE"]; gsub(/ /, "\\040", place); place = place == "/" ? place : place "/" }
    place == "/" && $5 != "/" { next }
    {
      below = $5 == "/" ? $5 : $5 "/"
      if (substr(place, 1, length(below)) != below || length(below) < longest) next
      longest = length(below); at = $5; own = "," $6 ","
      for (i = 7; i < NF && $i != "-"; i++);
      whole = "," $(i + 3) ","
    }
    END {
      if (own ~ /,ro,/ || whole ~ /,ro,/) print "ro", ENVIRON["ASKED"], at
      if (own ~ /,noexec,/) print "noexec", ENVIRON["ASKED"], at
    }' /proc/self/mountinfo 2>/dev/null
}
each restricted restricted "$@"

# SELinux, where it is enforced, and whether its policy has the types of containers: the kernel tells which contexts it
# knows. One that every policy knows shows whether this user may ask.
echo @@selinux
selinux=/sys/fs/selinux
knows() { { printf 'system_u:object_r:%s:s0' "$1" >"$selinux/context"; } 2>/dev/null; }
if [ "$(cat "$selinux/enforce" 2>/dev/null)" = 1 ]; then
  echo enforcing
  knows etc_t && ! knows container_file_t && echo no-container-types
fi

echo @@modules
is_there() {
  if [ -d "/sys/module/$1" ] || grep -q "/$1\.ko" "/lib/modules/$(uname -r)/modules.builtin" 2>/dev/null; then
    echo "$1"
  fi
}
each module is_there "$@"
[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] && echo br_netfilter
[ -e /proc/sys/net/netfilter/nf_conntrack_max ] && echo nf_conntrack
grep -qw overlay /proc/filesystems && echo overlay

# Modules that the kernel loads on demand: which of them are not loaded now, and which of those have
# no file.
release=$(uname -r)
files=/lib/modules/$release/modules.dep
echo @@absent-modules
is_absent() { [ -n "$(is_there "$1")" ] || echo "$1"; }
each needs is_absent "$@"
echo @@lacking-modules
is_lacking() { [ -n "$(is_absent "$1")" ] && ! grep -q "/$1\.ko" "$files" && echo "$1"; }
# A kernel without files of modules, or without the list of what is built in, does not tell what it lacks.
[ -s "$files" ] && [ -r "${files%.dep}.builtin" ] && each needs is_lacking "$@"
# The kernel that runs has modules, and was replaced by another one, which took them along.
echo @@kernel-gone
[ -e "$files" ] || { grep -q . /proc/modules && ls /lib/modules/*/modules.dep >/dev/null && echo yes; } 2>/dev/null
echo @@lacking-tools
is_no_tool() { command -v "$1" >/dev/null || echo "$1"; }
each tool is_no_tool "$@"
# Where a Raspberry Pi has the words for its kernel.
echo @@kernel-words
for path in /boot/firmware/cmdline.txt /boot/cmdline.txt; do
  [ -f "$path" ] && echo "$path" && break
done

echo @@sysctls
value() {
  file=/proc/sys/$(echo "$1" | tr . /)
  [ -r "$file" ] && echo "$1 $(cat "$file" 2>/dev/null)"
}
each sysctl value "$@"

echo @@swap
[ "$(wc -l </proc/swaps 2>/dev/null || echo 0)" -gt 1 ] && echo yes

echo @@free
free() {
  df -Pk "$1" 2>/dev/null | while read -r _ _ _ free _; do
    case $free in *[!0-9]*) ;; ?*) echo "$1 $free" ;; esac
  done
}
each free free "$@"

echo @@unreached
peers=
add_peer() { peers="$peers $1"; }
each peer add_peer "$@"
reach $peers

echo @@firewalld
state firewalld.service
echo @@services
# ufw's unit is active even where it is switched off.
grep -qsx 'ENABLED=yes' /etc/ufw/ufw.conf && echo ufw
for unit in NetworkManager.service nm-cloud-setup.timer nm-cloud-setup.service; do
  is_active "$unit" && echo "${unit%.*}"
done

# Docker does not tell the options of its logs.
echo @@docker-config
cat /etc/docker/daemon.json 2>/dev/null
echo
echo @@docker-flags
if [ -r /proc/1/cmdline ]; then
  for pid in $(pidof dockerd); do tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline"; done
else
  # Where processes are hidden, what its unit is started with says the same.
  {
    systemctl show docker.service -p ExecStart -p Environment
    cat /etc/default/docker /etc/sysconfig/docker
  } 2>/dev/null | grep -v '^#' | tr ' "' '\n\n'
fi
echo
echo @@end
