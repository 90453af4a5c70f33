#!/bin/sh
# kubeadm, for the benchmark: the peer, built from the modules that Kubernetes itself is built from.
set -eu
rootfs=$1
bin=$rootfs/usr/local/bin
minor=${VERSION#1.}
minor=${minor%%.*}

ldflags='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ldflags="$ldflags -X $package.gitVersion=v$VERSION -X $package.gitMajor=1"
    ldflags="$ldflags -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done
mkdir -p "$bin"
CGO_ENABLED=0 go build -ldflags "$ldflags" -o "$bin/" tool
