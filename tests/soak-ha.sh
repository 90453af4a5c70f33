#!/usr/bin/env bash
# `make soak-ha`: seven operations with seven faults each, and an upgrade, on one cluster of the lab that
# stands between runs (module `lab_soak`). A run goes on where the last one stopped: ROWS is the file with
# a line for each pair that was gone through. PAIRS=4 does at most four more, ONLY=add-worker/hang that pair
# again (either half may be empty), TABLE=1 none. CLUSTER=another is one of that name, which may stand beside
# the first, with its own ROWS. Ends with the table for docs/measurements.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target="${CARGO_TARGET_DIR:-target}"
SOAK_HA_ROWS=$(realpath --no-symlinks "${ROWS:-$target/soak-ha.jsonl}")
SOAK_HA_COMMIT=$(git describe --always --dirty)
SOAK_HA_TABLE=$(mktemp)
if [[ -n ${TABLE:-} ]]; then PAIRS=0; fi
SOAK_HA_LAB=${CLUSTER:-soak-ha}
export SOAK_HA_LAB SOAK_HA_ROWS SOAK_HA_COMMIT SOAK_HA_TABLE PAIRS="${PAIRS:-}" ONLY="${ONLY:-}"
trap 'rm -f "$SOAK_HA_TABLE"' EXIT

if [[ $PAIRS != 0 ]]; then
  cargo build --quiet --locked --package lab
  "$target/debug/lab" missing --install
  "$target/debug/lab" images >/dev/null
fi
code=0
cargo nextest run --workspace --locked --profile soak-ha --no-tests fail --no-capture || code=$?
printf '\n%s, ' "$(date -u +%F)"
cat "$SOAK_HA_TABLE"
exit "$code"
