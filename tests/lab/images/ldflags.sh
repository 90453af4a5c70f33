# shellcheck shell=sh
# Sourced by the recipes that build programs of Kubernetes.

# ldflags VERSION: what Go's linker writes into them, so that they say which release they are.
ldflags() {
    minor=${1#1.}
    minor=${minor%%.*}
    flags='-s -w'
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags="$flags -X $package.gitVersion=v$1 -X $package.gitMajor=1"
        flags="$flags -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
    done
    echo "$flags"
}
