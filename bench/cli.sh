#!/usr/bin/env bash
# `make bench-cli`: how long the command line takes to start, next to `true`, which is the cost of any process, and how
# large the program is. ROUNDS=100 rounds, interleaved. PROGRAM names another program than the one that is built for the
# image. Needs no node and no root. Ends with the table for docs/measurements.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${ROUNDS:-100}
program=${PROGRAM:-$(deploy/program.sh)}
"$program" --version >/dev/null
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# No file of this user is read.
export HOME="$folder" XDG_STATE_HOME="$folder"
unset RKE_CONFIG KUBECONFIG SSH_AUTH_SOCK

# Adds the microseconds that a command took to a file with its name; the rest is the command.
time_of() {
  local name=$1 begun ended
  shift
  begun=${EPOCHREALTIME//[.,]/}
  "$@" >/dev/null 2>&1 || true
  ended=${EPOCHREALTIME//[.,]/}
  echo "$((ended - begun))" >>"$folder/$name"
}

# The file with the most keys.
config=samples/cluster-ha.yml
# The first of each reads the program from its disk.
for round in $(seq 0 "$rounds"); do
  if [[ $round == 1 ]]; then rm -f "$folder"/{true,help,version,validate}; fi
  time_of true /bin/true
  time_of help "$program" --help
  time_of version "$program" --version
  time_of validate "$program" validate --config "$config"
done

# A line of the table: median, shortest and longest in ms, and the median as a multiple of that of `true`.
floor=$(sort -n "$folder/true" | sed -n "$(((rounds + 1) / 2))p")
row() {
  sort -n "$folder/$2" | awk -v name="$1" -v middle="$(((rounds + 1) / 2))" -v floor="$floor" '
    NR == 1 { least = $1 } NR == middle { median = $1 } { most = $1 }
    END { printf "| %s | %.1f | %.1f–%.1f | %.1f |\n", name, median / 1000, least / 1000, most / 1000, median / floor }'
}

printf '%s, commit %s, %d rounds; milliseconds\n\n' "$(date -u +%F)" "$(git describe --always --dirty)" "$rounds"
printf '| | median | spread | times the floor |\n|---|---|---|---|\n'
row 'floor: /bin/true' true
row '--version' version
row '--help' help
row "validate, with ${config##*/}" validate
printf '\nThe program has %s MB.\n' "$(awk -v bytes="$(wc -c <"$program")" 'BEGIN { printf "%.1f", bytes / 1e6 }')"
