#!/bin/sh
# helm on busybox, as the published image has it: beside a shell, run by a user who is not root.
set -eu
rootfs=$1
. ../busybox.sh

busybox_base "$rootfs"
CGO_ENABLED=0 go build -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v$VERSION" \
    -o "$rootfs/usr/bin/helm" tool
