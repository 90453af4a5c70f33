#!/bin/sh
# Writes go.mod and go.sum of another version of a program, which is all that its build has of its
# own; the rest is the program's recipe. Where modules of that version are not to be had, a third
# word names the version that stands in for them.
#   ./new.sh kubernetes 1.33.13
#   ./new.sh kubernetes 1.32.13 1.32.2   (six of the modules that are released with it)
#   ./new.sh etcd 3.6.14
#   ./new.sh etcd 3.5.26 3.5.33          (all of it)
set -eu
cd "$(dirname "$0")"
program=$1 version=$2 instead=${3:-$2}
into=$PWD/$program-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOFLAGS=-mod=mod GOWORK=off

case $program in
kubernetes)
    cp "../$program/main.go" "$work"
    cd "$work"
    # Its own go.mod names the modules that are released with it, without a version.
    theirs=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
    {
        echo 'module lab/kubernetes'
        grep -E '^(go|godebug) ' "$theirs"
        echo "require k8s.io/kubernetes v$version"
        sed -nE 's|^\t(k8s\.io/[a-z-]+) v0\.0\.0$|\1|p' "$theirs" | while read -r module; do
            has=v0.${version#1.}
            go mod download "$module@$has" < /dev/null 2> /dev/null || has=v0.${instead#1.}
            echo "replace $module => $module $has"
        done
    } > go.mod.new
    mv go.mod.new go.mod
    # Before 1.34 kubelet's command took no context, and building kubectl's logged nothing.
    case $version in 1.3[0-3].*)
        mkdir -p "$into"
        sed -e '/^\t"context"$/d' -e '/^\t"k8s.io\/component-base\/logs"$/d' \
            -e '/already logs/d' -e '/GlogSetter/d' \
            -e 's/NewKubeletCommand(context.Background())/NewKubeletCommand()/' main.go > "$into/main.go"
        cp "$into/main.go" main.go
        ;;
    esac
    # Tests of its modules want modules that nothing here wants.
    go mod tidy -e
    ;;
etcd)
    cd "$work"
    go mod init lab/etcd
    go get -tool "go.etcd.io/etcd/server/v3@v$instead" "go.etcd.io/etcd/etcdctl/v3@v$instead"
    # The least that it can be built with, and not this machine's.
    go mod edit -go=1.25.0
    ;;
*)
    echo "usage: $0 kubernetes|etcd VERSION [VERSION]" >&2
    exit 2
    ;;
esac
mkdir -p "$into"
mv go.mod go.sum "$into"
