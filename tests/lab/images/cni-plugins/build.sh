#!/bin/sh
# The CNI plugins and flannel's, on busybox; started, it copies them to the host.
set -eu
rootfs=$1
. ../busybox.sh

busybox_base "$rootfs"
mkdir -p "$rootfs/opt/cni/bin"
CGO_ENABLED=0 go build -o "$rootfs/opt/cni/bin/" \
    -ldflags "-s -w -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v$VERSION" tool
# Flannel's left that module after 0.9.1, and its own module is not to be had.
(cd flannel && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$rootfs/opt/cni/bin/" tool)
install -m 0755 install-cnis.sh "$rootfs/install-cnis.sh"
