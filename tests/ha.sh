#!/usr/bin/env bash
# `make test-ha`: what takes too long for `make test` on several real nodes (modules `lab_ha_…`, `lab_encryption`). Ends with
# the tables for docs/measurements.md, headed by the commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lab="${CARGO_TARGET_DIR:-target}/debug/lab"
cargo build --quiet --locked --package lab
"$lab" missing --install
"$lab" images >/dev/null

HA_TABLE=$(mktemp)
export HA_TABLE
trap 'rm -f "$HA_TABLE"' EXIT
code=0
cargo nextest run --workspace --locked --profile ha --no-tests fail "$@" || code=$?
printf '\n%s, commit %s\n\n' "$(date -u +%F)" "$(git describe --always --dirty)"
cat "$HA_TABLE"
exit "$code"
