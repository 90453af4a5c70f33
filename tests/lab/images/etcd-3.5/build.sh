#!/bin/sh
# etcd 3.5: the server only, for tests that ask it; no node runs it.
set -eu
rootfs=$1
bin=$rootfs/usr/local/bin

mkdir -p "$bin"
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$bin/" tool
mv "$bin/server" "$bin/etcd"
