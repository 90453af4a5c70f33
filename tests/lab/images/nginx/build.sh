#!/bin/sh
# nginx of Debian with its stream module, which the published image has compiled in: a wrapper loads
# it, so that a configuration written for the published image works here and there.
set -eu
rootfs=$1
. ../debian.sh

debian "$rootfs" essential nginx-light,libnginx-mod-stream
# shellcheck disable=SC2016 # a variable of dpkg-query's
found=$(chroot "$rootfs" dpkg-query --show --showformat '${Version}' nginx)
case $found in
"$VERSION"*) ;;
*) echo "Debian's nginx is $found, but the recipe says $VERSION" >&2 && exit 1 ;;
esac
rm -rf "$rootfs"/etc/nginx/modules-enabled "$rootfs"/etc/nginx/sites-*
mv "$rootfs/usr/sbin/nginx" "$rootfs/usr/lib/nginx/nginx"
install -m 0755 nginx.sh "$rootfs/usr/sbin/nginx"
install -m 0644 nginx.conf "$rootfs/etc/nginx/nginx.conf"
mkdir -p "$rootfs/var/log/nginx"
ln -sf /dev/stdout "$rootfs/var/log/nginx/access.log"
ln -sf /dev/stderr "$rootfs/var/log/nginx/error.log"
