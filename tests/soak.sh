#!/usr/bin/env bash
# `make soak N=50 SEED=7`: repeats the fault tests (modules `lab_kill…`, `lab_fault…`), each round with a
# seed of its own in SOAK_SEED. The operator's fault test needs a management cluster each time: it is part of
# every tenth round. Goes on after a failure, and ends with a table of every round.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${SOAK_ROUNDS:-10} first=${SOAK_SEED:-1}
table=() failures=0
for ((round = 0; round < rounds; round++)); do
  seed=$((first + round))
  begun=$SECONDS
  filter='test(/(^|::)lab_(kill|fault)/)' who='command line, operator'
  if ((round % 10 != 0)); then filter+=' - test(/(^|::)lab_kill_operator/)' who='command line'; fi
  echo "== round $((round + 1)) of $rounds, seed $seed: $who"
  if SOAK_SEED=$seed cargo nextest run --workspace --locked --profile lab --no-tests fail \
    --filterset "$filter"; then
    result=passed
  else
    result=FAILED
    failures=$((failures + 1))
  fi
  table+=("| $((round + 1)) | $seed | $who | $result | $((SECONDS - begun)) s |")
done
printf '\n| round | seed | killed | result | took |\n|---|---|---|---|---|\n'
printf '%s\n' "${table[@]}"
printf '\n%d rounds: %d passed, %d failed, %d s\n' "$rounds" $((rounds - failures)) "$failures" "$SECONDS"
((failures == 0))
