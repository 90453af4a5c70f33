#!/bin/sh
# Kubernetes' own tests, and the program that runs them in several processes.
set -eu
rootfs=$1
. ../ldflags.sh
bin=$rootfs/usr/local/bin

mkdir -p "$bin"
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$bin/" github.com/onsi/ginkgo/v2/ginkgo
# It is a package of tests, and no program: `go vet` of it would take as long as the build.
CGO_ENABLED=0 go test -c -vet off -ldflags "$(ldflags "$VERSION")" -o "$bin/e2e.test" k8s.io/kubernetes/test/e2e
