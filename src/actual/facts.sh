# Reads what an unprivileged user may know of a node. Writes nothing. One `@@name` line opens
# each section; the lists in capitals are filled in by the caller.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
LC_ALL=C
export PATH LC_ALL

# A change of containerd's configuration outlives the run that began it.
echo @@switching
systemctl is-active --quiet SWITCH_UNIT 2>/dev/null && echo yes

echo @@hostname; uname -n
echo @@kernel; uname -r
echo @@os; (. /etc/os-release && echo "$PRETTY_NAME") 2>/dev/null
echo @@machine-id; cat /etc/machine-id 2>/dev/null
echo @@init; cat /proc/1/comm 2>/dev/null

echo @@containerd-socket
[ -S /run/containerd/containerd.sock ] && echo yes
echo @@containerd-unit
systemctl show containerd.service -p LoadState -p ExecMainStartTimestampMonotonic 2>/dev/null
echo @@containerd-version
containerd --version 2>/dev/null
echo @@containerd-dump
if [ -e /etc/containerd/config.toml ]; then
  containerd --config /etc/containerd/config.toml config dump 2>/dev/null
else
  containerd config dump 2>/dev/null
fi
echo @@docker-unit
systemctl show docker.service -p BindsTo -p Requires 2>/dev/null

echo @@resolv-conf
if grep -Eq '^nameserver[[:space:]]+127\.0\.0\.53' /etc/resolv.conf 2>/dev/null &&
  [ -r /run/systemd/resolve/resolv.conf ]; then
  echo /run/systemd/resolve/resolv.conf
else
  echo /etc/resolv.conf
fi

echo @@listening
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ local _ state _; do
  [ "$state" = 0A ] && echo "${local##*:}"
done

echo @@listeners
ss -Hltn --cgroup 2>/dev/null | while read -r _ _ _ local _ cgroup _; do
  case $cgroup in cgroup:/?*) echo "${local##*:} ${cgroup##*/}" ;; esac
done

echo @@paths
for path in PATHS /opt/cni/bin/* /etc/cni/net.d/*; do
  [ -e "$path" ] && echo "$path"
done

echo @@empty
for path in PATHS; do
  [ -d "$path" ] && [ -r "$path" ] && [ -z "$(ls -A "$path" 2>/dev/null | grep -vx lost+found)" ] && echo "$path"
done

echo @@modules
for module in MODULES; do
  if [ -d "/sys/module/$module" ] || grep -q "/$module\.ko" "/lib/modules/$(uname -r)/modules.builtin" 2>/dev/null; then
    echo "$module"
  fi
done
[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] && echo br_netfilter
[ -e /proc/sys/net/netfilter/nf_conntrack_max ] && echo nf_conntrack
grep -qw overlay /proc/filesystems && echo overlay

echo @@sysctls
for name in SYSCTLS; do
  file=/proc/sys/$(echo "$name" | tr . /)
  [ -r "$file" ] && echo "$name $(cat "$file" 2>/dev/null)"
done

echo @@free
for path in / /var/lib /var/lib/docker /var/lib/containerd; do
  df -Pk "$path" 2>/dev/null | while read -r _ _ _ free _; do
    case $free in *[!0-9]*) ;; ?*) echo "$path $free" ;; esac
  done
done

echo @@firewalld
systemctl is-active firewalld.service 2>/dev/null
echo @@end
