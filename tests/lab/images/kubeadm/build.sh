#!/bin/sh
# kubeadm, for the benchmark: the peer, built from the modules that Kubernetes itself is built from.
set -eu
rootfs=$1
. ../ldflags.sh
bin=$rootfs/usr/local/bin

mkdir -p "$bin"
CGO_ENABLED=0 go build -ldflags "$(ldflags "$VERSION")" -o "$bin/" tool
