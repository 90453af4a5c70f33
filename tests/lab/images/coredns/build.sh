#!/bin/sh
# CoreDNS on busybox.
set -eu
rootfs=$1
. ../busybox.sh

busybox_base "$rootfs"
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$rootfs/coredns" tool
