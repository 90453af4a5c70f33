#!/bin/sh
# busybox, for Kubernetes' own tests. Its shell is bash: Debian's busybox keeps from programs what the environment has
# under names that a shell cannot use, as `data-1`, and the published image's does not.
set -eu
rootfs=$1
. ../busybox.sh

busybox_base "$rootfs"
mmdebstrap --quiet --variant=extract --include=bash-static trixie "$rootfs.shell"
install -m 0755 "$rootfs.shell/usr/bin/bash-static" "$rootfs/usr/bin/bash"
rm -rf "$rootfs.shell"
ln -sf bash "$rootfs/usr/bin/sh"
