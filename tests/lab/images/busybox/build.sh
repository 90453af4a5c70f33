#!/bin/sh
# busybox alone, for Kubernetes' own tests.
set -eu
. ../busybox.sh

busybox_base "$1"
