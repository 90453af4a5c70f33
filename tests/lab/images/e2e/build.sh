#!/bin/sh
# Kubernetes' own tests, and the program that runs them in several processes.
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
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$bin/" github.com/onsi/ginkgo/v2/ginkgo
# It is a package of tests, and no program: `go vet` of it would take as long as the build.
CGO_ENABLED=0 go test -c -vet off -ldflags "$ldflags" -o "$bin/e2e.test" k8s.io/kubernetes/test/e2e
