#!/bin/sh
# A program of people's own with an old client-go.
set -eu
rootfs=$1

CGO_ENABLED=0 go build -ldflags '-s -w' -o "$rootfs/old-client" .
