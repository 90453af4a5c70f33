#!/bin/sh
# flannel on busybox with iptables. The module proxy has 0.28.4 and not 0.28.1, whose name it bears.
set -eu
rootfs=$1
. ../busybox.sh

busybox_base "$rootfs" iptables
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    # The package's alternatives are set by a script that does not run here.
    ln -sf xtables-nft-multi "$rootfs/usr/sbin/$name"
done
mkdir -p "$rootfs/opt/bin"
# The udp backend is C, so the program is linked statically by hand.
CGO_ENABLED=1 go build -tags netgo,osusergo -o "$rootfs/opt/bin/flanneld" \
    -ldflags "-s -w -linkmode external -extldflags -static \
        -X github.com/flannel-io/flannel/pkg/version.Version=v$VERSION" tool
