#!/usr/bin/env bash
# `make soak-pods KILLS=50 SEED=7`: the pod that leads is killed at random instants while a cluster is made, changed and
# taken down, again and again (module `lab_pods_killed`). Ends with the table for docs/measurements.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lab="${CARGO_TARGET_DIR:-target}/debug/lab"
cargo build --quiet --locked --package lab
"$lab" missing --install
"$lab" images >/dev/null
SOAK_PODS_TABLE=$(mktemp)
export SOAK_PODS_TABLE
trap 'rm -f "$SOAK_PODS_TABLE"' EXIT
code=0
cargo nextest run --workspace --locked --profile soak-pods --no-tests fail || code=$?
printf '\n%s, commit %s, seed %s\n\n' "$(date -u +%F)" "$(git describe --always --dirty)" "${SOAK_SEED:-1}"
printf '| killed while it is to | kills | another leads, median | worst |\n|---|---|---|---|\n'
cat "$SOAK_PODS_TABLE"
exit "$code"
