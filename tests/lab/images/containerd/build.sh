#!/bin/sh
# containerd of the next major release, its shim and ctr, in the place of Debian's on a node.
set -eu
rootfs=$1
bin=$rootfs/usr/bin

mkdir -p "$bin"
CGO_ENABLED=0 go build -tags no_btrfs -o "$bin/" \
    -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$VERSION" tool
