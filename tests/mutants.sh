#!/usr/bin/env bash
# `make mutants MUTANTS=40 SEED=1`: changes the code of `.cargo/mutants.toml`'s files in one place at a
# time, in copies of the tree, and runs the tests that need no lab. MUTANTS of them, spread evenly over
# the files; another SEED takes others; MUTANTS=all takes all, which is a night's work on two cores.
# Fails for a survivor that `tests/mutants-judged.txt` does not have a reason for, and below 90 %.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

count=${MUTANTS:-40} seed=${SEED:-1} jobs=${JOBS:-1}
judged=${MUTANTS_JUDGED:-tests/mutants-judged.txt}
out="${CARGO_TARGET_DIR:-target}/mutants"
export INSTA_UPDATE=no PROPTEST_CASES="${PROPTEST_CASES:-64}" CARGO_TERM_COLOR=never

for tool in cargo-mutants cargo-nextest; do
  command -v "$tool" >/dev/null || cargo install --locked "$tool"
done

# All mutants: the name that cargo-mutants gives, a tab, and the name without its place, which moves with
# every edit; the second one of a name in its function is `… #2`.
named() {
  cargo mutants --list | awk '{ name = $0; sub(/:[0-9]+:[0-9]+: /, ": ", name); count[name]++
    print $0 "\t" name (count[name] > 1 ? " #" count[name] : "") }'
}
# The names without place of those on stdin.
plain() { awk -F'\t' 'NR == FNR { name[$1] = $2; next } $0 in name { print name[$0] }' <(echo "$all") -; }
# The mutants of the judged list.
excused() { grep -v '^#' "$judged" | sed -nE 's/^(.*[^ ]) +=> +.+$/\1/p' | sort -u; }

all=$(named)
total=$(wc -l <<<"$all")
stale=$(comm -23 <(excused) <(cut -f2 <<<"$all" | sort -u))
if [[ -n $stale ]]; then
  printf 'no such mutant any more; take it out of %s:\n%s\n' "$judged" "$stale" >&2
  exit 1
fi
[[ $count == all ]] && count=$total
shards=$(((total + count - 1) / count))
shard=$((seed % shards))
echo "== $total mutants; those of shard $shard of $shards"

mkdir -p "$out"
code=0
cargo mutants --output "$out" --package rke-operator --shard "$shard/$shards" --sharding round-robin \
  --jobs "$jobs" --no-shuffle || code=$?
# 0: all killed. 2: some survived. 3: some took too long. Anything else is no result.
case $code in 0 | 2 | 3) ;; *) exit "$code" ;; esac

lines() { if [[ -e $out/mutants.out/$1.txt ]]; then cat "$out/mutants.out/$1.txt"; fi; }
killed=$(($(lines caught | wc -l) + $(lines timeout | wc -l)))
survivors=$(lines missed | plain | sort -u)
known=$(comm -12 <(sort -u <<<"$survivors") <(excused) | sed '/^$/d')
unknown=$(comm -23 <(sort -u <<<"$survivors") <(excused) | sed '/^$/d')
of() { sed '/^$/d' <<<"$1" | wc -l; }
judgeable=$((killed + $(of "$unknown")))
percent=$((judgeable > 0 ? killed * 100 / judgeable : 100))
if [[ -n $known ]]; then printf '\nsurvived, with a reason:\n%s\n' "$known"; fi
if [[ -n $unknown ]]; then printf '\nsurvived:\n%s\n' "$unknown"; fi
printf '\n%d killed, %d survived, %d of them with a reason, %d did not compile: %d %%, %d s\n' "$killed" \
  "$(($(of "$known") + $(of "$unknown")))" "$(of "$known")" "$(lines unviable | wc -l)" "$percent" "$SECONDS"
[[ -z $unknown ]] && ((percent >= 90))
