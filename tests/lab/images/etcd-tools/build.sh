#!/bin/sh
# etcd, etcdctl and etcdutl, and nothing else, as in the published image.
set -eu
rootfs=$1
bin=$rootfs/usr/local/bin

mkdir -p "$bin"
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$bin/" tool
mv "$bin/server" "$bin/etcd"
