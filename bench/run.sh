#!/usr/bin/env bash
# `make bench`, `make bench-ha`: a fresh `up` of one node or of five beside kubeadm and beside a floor.
# ROUNDS=5 rounds, interleaved. Needs root. Nothing else should run on the machine; how busy it is, is looked at
# before each run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo build --release --locked --workspace --bins
target="${CARGO_TARGET_DIR:-target}/release"
if [[ $(id -u) == 0 ]]; then as_root=(env); else as_root=(sudo '--preserve-env=XDG_CACHE_HOME,LAB_REGISTRY' env "PATH=$PATH"); fi
"${as_root[@]}" "$target/bench" "$target/rke-operator" "${1:-1}" "${ROUNDS:-5}"
