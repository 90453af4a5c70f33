#!/bin/sh
# A node's root file system: a Debian server with systemd, OpenSSH, Docker and containerd.
set -eu
rootfs=$1
. ../debian.sh

packages=systemd,systemd-sysv,dbus,udev,openssh-server,sudo,docker.io,iptables,nftables
case ${SUITE:-trixie} in
# The command line came with docker.io then.
bullseye | bookworm) ;;
*) packages=$packages,docker-cli ;;
esac
packages=$packages,ipset,iproute2,iputils-ping,procps,kmod,mount,socat,conntrack,ethtool,curl,jq
debian "$rootfs" minbase "$packages,ca-certificates"
cp -R files/. "$rootfs/"
chroot "$rootfs" sh -eu <<'IN'
# The wrapper stands in runc's own place, so that no configuration has to name it.
dpkg-divert --quiet --local --rename --divert /usr/sbin/runc.real --add /usr/sbin/runc
mv /usr/local/sbin/runc-wrapper /usr/sbin/runc
chmod 0755 /usr/sbin/runc /usr/local/sbin/lab-init
# A server has no ipset of its own, so it is not on the PATH; the tests look at a node with it.
mkdir -p /lab/bin
dpkg-divert --quiet --local --rename --divert /lab/bin/ipset --add /usr/sbin/ipset
# What a container must not do: the network and devices are the machine's business.
for unit in systemd-networkd.service systemd-resolved.service systemd-logind.service \
    systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket \
    systemd-udevd-control.socket getty.target console-getty.service systemd-remount-fs.service \
    apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer dpkg-db-backup.timer fstrim.timer \
    systemd-journald-audit.socket sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-kernel-config.mount systemd-firstboot.service systemd-hwdb-update.service; do
    ln -sf /dev/null "/etc/systemd/system/$unit"
done
ln -sf /lib/systemd/system/multi-user.target /etc/systemd/system/default.target
# Each node makes its own.
rm -f /etc/ssh/ssh_host_* /etc/machine-id /var/lib/dbus/machine-id
: > /etc/machine-id
useradd --create-home --shell /bin/bash --uid 1000 lab
usermod --password '*' lab
install -d -m 0700 -o lab -g lab /home/lab/.ssh
IN
