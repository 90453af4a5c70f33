#!/bin/sh
# Kubernetes: one program under six names, on a base that has what the published image's has.
set -eu
rootfs=$1
. ../debian.sh
. ../ldflags.sh

debian "$rootfs" essential iptables,nftables,ipset,conntrack,kmod,mount
# No program of Kubernetes asks for Perl, character sets or the package manager: two thirds of all files, and it is files
# that Docker's unpacking spends its time on.
rm -rf "$rootfs"/usr/bin/perl* "$rootfs"/usr/lib/*/perl-base "$rootfs"/usr/lib/*/gconv "$rootfs"/usr/share/perl5 \
    "$rootfs"/usr/share/bash-completion "$rootfs"/var/lib/dpkg
CGO_ENABLED=0 go build -ldflags "$(ldflags "$VERSION")" -o "$rootfs/usr/local/bin/kubectl" .
# Hard links: a program that is executed through a file descriptor knows only its own file's name.
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
    ln "$rootfs/usr/local/bin/kubectl" "$rootfs/usr/local/bin/$name"
done
