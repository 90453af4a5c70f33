#!/usr/bin/env bash
# `make bench-fleet`: the release binary against fleets of fake nodes on loopback addresses. Needs no root
# and no Docker; 1000 nodes want 16 000 open files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo build --release --locked --package rke-operator --package fleet
ulimit -n "$(ulimit -H -n)"
target="${CARGO_TARGET_DIR:-target}/release"
"$target/fleet" "$target/rke-operator" "${@:-100}"
