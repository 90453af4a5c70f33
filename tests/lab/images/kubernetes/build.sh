#!/bin/sh
# Kubernetes: one program under six names, on a base that has what the published image's has.
set -eu
rootfs=$1
. ../debian.sh
. ../ldflags.sh

debian "$rootfs" essential iptables,nftables,ipset,conntrack,kmod,mount
CGO_ENABLED=0 go build -ldflags "$(ldflags "$VERSION")" -o "$rootfs/usr/local/bin/kubectl" .
# Hard links: a program that is executed through a file descriptor knows only its own file's name.
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
    ln "$rootfs/usr/local/bin/kubectl" "$rootfs/usr/local/bin/$name"
done
