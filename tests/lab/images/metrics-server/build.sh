#!/bin/sh
# metrics-server on busybox. The module proxy has 0.9.0 and not 0.8.1, whose name it bears.
set -eu
rootfs=$1
. ../busybox.sh

busybox_base "$rootfs"
CGO_ENABLED=0 go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$VERSION" \
    -o "$rootfs/metrics-server" tool
