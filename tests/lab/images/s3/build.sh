#!/bin/sh
# A server of S3's API whose objects are files in a folder.
set -eu
rootfs=$1
bin=$rootfs/usr/local/bin

mkdir -p "$bin"
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$bin/" tool
