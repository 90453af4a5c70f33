#!/usr/bin/env bash
# `make guards`: what keeps clusters alive is taken away, one guard at a time, in a copy of the tree, and
# the tests that need no lab must notice. `tests/guards.toml` says how each is taken away; ONLY=plan-roll
# takes those whose names begin so. One build serves nearly all of them (tests/guards/weave.rs); the others need a
# build each. Fails for a guard that nobody misses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

only=${ONLY:-}
mkdir -p "${CARGO_TARGET_DIR:-target}/guards"
out=$(cd "${CARGO_TARGET_DIR:-target}/guards" && pwd)
tree=$out/tree
log=$out/log
cargo build --quiet --locked --example guards
table=$out/../debug/examples/guards
export CARGO_TARGET_DIR=$out/build CARGO_TERM_COLOR=never
export INSTA_UPDATE=no PROPTEST_CASES="${PROPTEST_CASES:-64}"
# With the question "is this guard taken away?" in so many functions, the longest chains of calls need more than 2 MiB
# where nothing is optimized.
export RUST_MIN_STACK=8388608
# A body without its guard may leave a variable unused.
export RUSTFLAGS="${RUSTFLAGS:-} --cap-lints=allow"

mapfile -t guards < <("$table" names "$only")
if ((${#guards[@]} == 0)); then
  echo "no guard of tests/guards.toml begins with \`$only\`" >&2
  exit 2
fi
command -v cargo-nextest >/dev/null || cargo install --locked cargo-nextest

# Where a guard is missed first; whatever these do not notice, all others are asked.
near() {
  case $1 in
    plan-roles* | plan-addresses* | plan-no-execute | plan-prune-after-* | pki-roles-* | pki-no-first-*)
      echo 'test(/joint_roles|joint_addresses/)' ;;
    plan-lost-* | plan-leavers-*) echo 'test(/joint_lost|plan_/)' ;;
    plan-*) echo 'test(/plan_|unasked|cli_node/)' ;;
    apply-*) echo 'test(/apply::|host_guards/)' ;;
    converge-*) echo 'test(/converge|turns::|unasked|joint_|cli_node/)' ;;
    lease-*) echo 'test(/lease::|turns::|operator_process/)' ;;
    encryption-*) echo 'test(/encryption/) - test(/lab_/)' ;;
    pki-*) echo 'test(/pki::/)' ;;
    state-*) echo 'test(/state::|operator_writes/)' ;;
    host-files-*) echo 'test(/host::files|contract|host_|cli_node/)' ;;
    workload-*) echo 'test(/workload::/)' ;;
    host-*) echo 'test(/known_hosts/)' ;;
    operator-*) echo 'test(/operator_/) - test(/lab_/)' ;;
    *) echo 'all()' ;;
  esac
}

# All but those that read the sources.
tests() {
  (cd "$tree" && cargo nextest run --workspace --locked --fail-fast --no-tests pass --status-level fail \
    --final-status-level none --failure-output never --success-output never \
    -E "($1) & default() - test(/^(guards|purity|words)::/)") >"$log" 2>&1
}

# The tree as it is here, with what is not committed.
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference -t "$tree"
names=$("$table" weave "$tree")
declare -A woven
while read -r name; do woven[$name]=1; done <<<"$names"
echo "== the tests pass with every guard in its place"
if ! tests 'all()'; then
  tail -n 30 "$log" >&2
  echo 'the tests fail as it is; guards cannot be judged' >&2
  exit 1
fi

missed=0 survived=()
printf '\n| guard | who misses it |\n|---|---|\n'
for name in "${guards[@]}"; do
  if [[ -n ${woven[$name]:-} ]]; then
    printf %s "$name" >"$tree/guard-taken-away"
  else
    file=$("$table" file "$name")
    cp "$tree/$file" "$out/kept"
    "$table" without "$name" >"$out/without"
    cp "$out/without" "$tree/$file"
  fi
  code=0
  first="test(/^$("$table" test "$name")\$/)"
  for which in "$first" "$(near "$name")" 'all()'; do
    code=0
    tests "$which" || code=$?
    ((code == 0)) || break
  done
  if [[ -n ${woven[$name]:-} ]]; then
    rm "$tree/guard-taken-away"
  else
    cp "$out/kept" "$tree/$file"
  fi
  case $code in
    0)
      survived+=("$name")
      printf '| %s | **nobody** |\n' "$name"
      ;;
    100)
      missed=$((missed + 1))
      printf '| %s | %s |\n' "$name" "$(awk '$1 == "FAIL" || $1 == "TIMEOUT" { print "`" $NF "`"; exit }' "$log")"
      ;;
    *)
      tail -n 30 "$log" >&2
      echo "$name: the tests do not build or do not run without it; correct its row of tests/guards.toml" >&2
      exit 1
      ;;
  esac
done
printf '\n%d guards, %d missed, %d s\n' "${#guards[@]}" "$missed" "$SECONDS"
if ((${#survived[@]} > 0)); then
  printf 'nobody misses: %s\n' "${survived[*]}" >&2
  exit 1
fi
