#!/usr/bin/env bash
# `make fuzz SECONDS=300`: gives mutated documents to everything between the text and the plan (`fuzz/`), without a
# sanitizer, so that the stable toolchain is enough. Begins with the documents of rkespec/ and tests/fixtures/bad/, and
# with what earlier runs found new (target/fuzz/corpus). An input that fails is in target/fuzz/artifacts:
# `cargo fuzz run --sanitizer none --target-dir target/fuzz cluster_yml FILE` runs it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${FUZZ_SECONDS:-300}
out="${CARGO_TARGET_DIR:-target}/fuzz"
corpus=$out/corpus artifacts=$out/artifacts log=$out/log dictionary=$out/keys.dict
mkdir -p "$corpus" "$artifacts"
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

# The keys of the table, as the schema for editors has them.
sed -nE 's/^ *"([A-Za-z0-9_-]+)": \{$/"\1:"/p' docs/reference/cluster.schema.json | sort -u >"$dictionary"
mapfile -t seeds < <(find rkespec tests/fixtures/bad -type d)
before=$(find "$artifacts" -type f | wc -l)

# The longest document of the seeds has 5 kB; a run that takes 10 s hangs.
code=0
cargo fuzz run --sanitizer none --target-dir "$out" cluster_yml "$corpus" "${seeds[@]}" -- \
  -dict="$dictionary" -artifact_prefix="$artifacts/" -max_total_time="$seconds" -max_len=8192 -timeout=10 \
  -rss_limit_mb=3072 -print_final_stats=1 2>&1 | tee "$log" || code=$?

value() { sed -nE "s/^.*$1 *([0-9]+).*$/\1/p" "$log" | tail -1; }
after=$(find "$artifacts" -type f | wc -l)
echo
echo "executions: $(value 'stat::number_of_executed_units:'), coverage: $(value 'cov:') edges, findings: $((after - before))"
exit "$code"
