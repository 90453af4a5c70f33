#!/usr/bin/env bash
# `make test-versions`: every release of Kubernetes that the lab can build is made, used and removed on a
# real node, and one cluster goes through them (modules `lab_versions`); and the default one is made and removed on
# several releases of Debian (`lab_distributions`; `distributions` runs these alone). Builds the images first, which
# takes long the first time; ends with a table for docs/measurements.md, headed by the commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

releases=(v1.33.13 v1.32.13 v1.35.4)
lab="${CARGO_TARGET_DIR:-target}/debug/lab"
cargo build --quiet --locked --package lab
"$lab" missing --install
# Other releases of Debian have the default Kubernetes; their own images are built by the tests.
if [[ $* == distributions ]]; then releases=(); fi
"$lab" images >/dev/null
for release in "${releases[@]}"; do "$lab" images --release "$release" >/dev/null; done

VERSIONS_TABLE=$(mktemp)
export VERSIONS_TABLE
trap 'rm -f "$VERSIONS_TABLE"' EXIT
code=0
cargo nextest run --workspace --locked --profile versions --no-tests fail "$@" || code=$?
printf '\n%s, commit %s\n\n' "$(date -u +%F)" "$(git describe --always --dirty)"
# shellcheck disable=SC2016 # Markdown's ticks
printf '| | Kubernetes | etcd | runtime | `up` | `up` again | `remove` |\n|---|---|---|---|---|---|---|\n'
sort "$VERSIONS_TABLE"
exit "$code"
