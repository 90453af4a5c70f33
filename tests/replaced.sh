#!/usr/bin/env bash
# `make test-replaced FROM=<commit>`: builds the operator of an earlier commit in a tree of its own, lets it make clusters
# as pods, and replaces it by the present one (module `lab_replaced`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

from=${1:?'usage: make test-replaced FROM=<commit>'}
target="${CARGO_TARGET_DIR:-target}"
commit=$(git rev-parse --verify "$from^{commit}")
REPLACED=$(realpath --canonicalize-missing "$target/replaced/$commit")
export REPLACED
if [[ ! -d $REPLACED ]]; then
  mkdir -p "${REPLACED%/*}"
  git archive --prefix="$commit/" "$commit" | tar -x -C "${REPLACED%/*}"
fi
(cd "$REPLACED" && CARGO_TARGET_DIR="$REPLACED/target" cargo build --locked --bin rke-operator)

lab="$target/debug/lab"
cargo build --quiet --locked --package lab
"$lab" missing --install
"$lab" images >/dev/null
cargo nextest run --workspace --locked --profile replaced --no-tests fail
