#!/usr/bin/env bash
# `make test`: every test there is. What this machine cannot run is said, and counted as skipped;
# with REQUIRE_LAB=1 it fails the run instead. The last line sums up, in the words of nextest's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

require_lab=${REQUIRE_LAB:-0}
begun=$SECONDS
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run=0 passed=0 failed=0 skipped=0
broken=() names=() whys=()

# Adds the numbers of a nextest summary; tests that its filter left out are another stage's.
add_nextest() {
  local summary
  summary=$(grep -aE '^ +Summary \[' "$log" | tail -n 1 || true)
  run=$((run + $(number '([0-9]+)(/[0-9]+)? tests? run')))
  passed=$((passed + $(number '([0-9]+) passed')))
  failed=$((failed + $(number '([0-9]+) failed') + $(number '([0-9]+) timed out') + $(number '([0-9]+) exec failed')))
  # What nextest says once more after its summary.
  while read -r name; do names+=("$name"); done < <(
    sed -nE '/^ +Summary \[/,$s/^ *(TRY [0-9]+ )?(FAIL|FLAKY|TMT|TIMEOUT|ABORT|SIG[A-Z]+)[^(]*\([^)]*\) (.*)$/\2 \3/p' "$log"
  )
  # Why: a test of the lab prints thousands of lines, and these are lost among them.
  while IFS= read -r line; do whys+=("${line:0:400}"); done < <(
    sed -nE "/^ *thread '.*panicked at /,/^ *(note: run with|stack backtrace:|$)/{s/^ +//; /^(note: run with|stack backtrace:)|^$/!p}" "$log" | head -n 40
  )
}

# The first number of the summary that a pattern finds, or 0.
number() {
  if [[ ${summary:-} =~ $1 ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
}

# Runs a stage, shows what it says, and remembers whether it failed.
stage() {
  local name=$1
  shift
  echo "== $name: $*"
  if ! "$@" 2>&1 | tee "$log"; then broken+=("$name"); fi
}

export INSTA_UPDATE="${INSTA_UPDATE:-no}"

if ! cargo nextest --version >/dev/null 2>&1; then
  echo '== installing cargo-nextest, which runs the tests'
  cargo install --locked cargo-nextest
fi

# Tests clean up folders and firewalls with a node's own programs; the lab knows what brings them.
lab="${CARGO_TARGET_DIR:-target}/debug/lab"
install_programs() { cargo build --quiet --locked --package lab && "$lab" missing --install; }
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  stage 'missing programs' install_programs
fi

stage tests cargo nextest run --workspace --locked --profile ci
add_nextest

stage 'documentation tests' cargo test --workspace --locked --doc
while read -r good bad; do
  run=$((run + good + bad)) passed=$((passed + good)) failed=$((failed + bad))
done < <(sed -nE 's/^test result: [a-zA-Z]+\. ([0-9]+) passed; ([0-9]+) failed;.*/\1 \2/p' "$log")

# The lab: root, Docker (installed and started if need be), Go for its images.
why='' none=pass
if [[ $require_lab == 1 ]]; then none=fail; fi
if [[ $(id -u) != 0 ]]; then
  why='it needs root (sudo -E make test)'
elif ! command -v go >/dev/null; then
  why='its images are built with Go 1.24 or later, and go is not on the PATH'
elif ! cargo build --quiet --locked --package lab; then
  why='its command does not build'
  broken+=('lab build')
elif ! "$lab" images >"$log"; then
  why='its images could not be made; see above'
  broken+=('lab images')
fi
if [[ -z $why ]]; then
  # Nodes of the lab are given it; a compiler next to their clusters would make these slow.
  stage 'static program' env PROFILE=dev CARGO_PROFILE_DEV_DEBUG=0 deploy/program.sh
  stage lab cargo nextest run --workspace --locked --profile lab --no-tests "$none"
  add_nextest
else
  count=$(cargo nextest list --workspace --locked --profile lab --message-format oneline 2>/dev/null | wc -l)
  skipped=$((skipped + count))
  echo "== lab: $count tests skipped: $why"
  # Whoever wants a run without the lab's tests says so beforehand.
  if [[ $require_lab == 1 ]]; then broken+=("lab: $count tests did not run, and REQUIRE_LAB=1"); fi
fi

# Left out on purpose, so it is said and not counted.
left() { cargo nextest list --workspace --locked --profile "$1" --message-format oneline 2>/dev/null | wc -l; }
echo "== versions: $(left versions) tests of other releases of Kubernetes and of Debian left out: make test-versions runs them"
echo "== ha: $(left ha) long tests of several nodes left out: make test-ha runs them"
echo "== soak-pods, replaced, hints: pods killed at random, an earlier operator replaced, how fast faults are noticed, left out: make soak-pods, test-replaced, bench-hints"
echo "== soak-ha: fault injection during changes to a cluster left out: make soak-ha resumes it"
echo "== conformance: Kubernetes' own conformance tests left out: make conformance runs them"

printf '────────────\n     Summary [%8ss] %d tests run: %d passed' "$((SECONDS - begun))" "$run" "$passed"
if ((failed > 0)); then printf ', %d failed' "$failed"; fi
printf ', %d skipped\n' "$skipped"
if ((${#names[@]} > 0)); then printf '  %s\n' "${names[@]}"; fi
if ((${#whys[@]} > 0)); then printf '    %s\n' "${whys[@]}"; fi
if ((${#broken[@]} > 0)); then
  printf 'failed: %s\n' "$(IFS=,; echo "${broken[*]}")"
  exit 1
fi
