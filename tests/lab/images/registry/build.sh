#!/bin/sh
# Debian's registry and the libraries it needs.
set -eu
rootfs=$1

mmdebstrap --quiet --variant=extract --skip=output/dev --include=docker-registry,libc6 trixie "$rootfs"
# The files alone: the folders of old are links that another package has.
ln -s usr/lib "$rootfs/lib"
[ ! -d "$rootfs/usr/lib64" ] || ln -s usr/lib64 "$rootfs/lib64"
rm -rf "$rootfs"/usr/share/doc "$rootfs"/usr/share/man "$rootfs"/usr/share/locale "$rootfs"/var/lib/apt
mkdir -p "$rootfs/tmp" "$rootfs/var/lib/registry"
install -D -m 0644 config.yml "$rootfs/etc/docker/registry/config.yml"
