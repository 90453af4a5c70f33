#!/usr/bin/env bash
# `make bench-hints`: how fast the operator notices what happens in a cluster of three control planes and a worker, and how
# fast it is well again, on real nodes: each row of the table in docs/operator.md ROUNDS times (module `lab_hints`), or
# ONLY those with that in their names. A round takes a minute and a bit. Needs root. Ends with the median and the worst of
# each row for docs/measurements.md, headed by the commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lab="${CARGO_TARGET_DIR:-target}/debug/lab"
cargo build --quiet --locked --package lab
"$lab" missing --install
"$lab" images >/dev/null

HINTS_TABLE=$(mktemp)
HINTS_ROUNDS=${ROUNDS:-20}
HINTS_ONLY=${ONLY:-}
export HINTS_TABLE HINTS_ROUNDS HINTS_ONLY
trap 'rm -f "$HINTS_TABLE"' EXIT
code=0
cargo nextest run --workspace --locked --profile hints --no-tests fail "$@" || code=$?
printf '\n%s, commit %s; seconds until the condition says so, and until all is well again: after the fault, or after its end\n\n' \
	"$(date -u +%F)" "$(git describe --always --dirty)"
printf '| Fault | Rounds | Bound | Seen, median | Seen, worst | Well, median | Well, worst |\n|---|---|---|---|---|---|---|\n'
cat "$HINTS_TABLE"
exit "$code"
