#!/usr/bin/env bash
# `make bench-operator CLUSTERS=500 NODES=5 MINUTES=30`: the release binary as an operator with many Clusters, whose nodes
# and management API are another process. The operator dials no address of its own machine, so both are in a network
# namespace of their own, in which every address of 10.78.0.0/16 is the nodes'. Needs root, and no Docker.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo build --release --locked --package rke-operator --package fleet
target="${CARGO_TARGET_DIR:-target}/release"
ulimit -n "$(ulimit -H -n)"
# shellcheck disable=SC2016 # the shell in the namespace expands it
exec unshare --net bash -c '
  set -euo pipefail
  ip link set lo up
  ip route add local 10.78.0.0/16 dev lo
  exec taskset --cpu-list 0 "$@"' bash "$target/fleet" operator "$target/rke-operator" "$@"
