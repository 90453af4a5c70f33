#!/bin/sh
# Kubernetes: one program under six names, on a base that has what the published image's has.
set -eu
rootfs=$1
. ../debian.sh
minor=${VERSION#1.}
minor=${minor%%.*}

ldflags='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ldflags="$ldflags -X $package.gitVersion=v$VERSION -X $package.gitMajor=1"
    ldflags="$ldflags -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done
debian "$rootfs" essential iptables,nftables,ipset,conntrack,kmod,mount
CGO_ENABLED=0 go build -ldflags "$ldflags" -o "$rootfs/usr/local/bin/kubectl" .
# Hard links: a program that is executed through a file descriptor knows only its own file's name.
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
    ln "$rootfs/usr/local/bin/kubectl" "$rootfs/usr/local/bin/$name"
done
