#!/usr/bin/env bash
# A recording of commands, run in order in a terminal of this size, as an animated SVG:
#
#   tests/record.sh docs/recording.svg 'rke-operator up --yes' 'rke-operator up'
#
# The commands run here, with this folder and this PATH; all of them must succeed, or the file stays as it was. What is
# shown is what they printed, in their own time, but for pauses: they last 2 s at most. Needs asciinema, which records, and termtosvg, which draws; no network.
set -euo pipefail

columns=${COLUMNS_SHOWN:-100} rows=${ROWS_SHOWN:-30}
longest=2000
# What a page should not weigh more than, in bytes; GitHub shows larger ones, too.
most=${MOST:-200000}

if (($# < 2)); then
  echo "usage: tests/record.sh FILE.svg COMMAND…, each command as one word" >&2
  exit 1
fi
for program in asciinema termtosvg; do
  if ! "$program" --help >/dev/null 2>&1; then
    echo "$program is missing: pip install 'asciinema<3' termtosvg" >&2
    exit 1
  fi
done
file=$1
shift

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Types each command at a prompt, runs it, and stops at one that fails.
cat >"$folder/typed.sh" <<'END'
code=$1
shift
for command; do
  printf '\033[1;32m$\033[0m '
  for ((i = 0; i < ${#command}; i++)); do
    printf '%s' "${command:i:1}"
    sleep 0.04
  done
  sleep 0.5
  printf '\n'
  bash -c "$command" </dev/null || { echo "$?" >"$code"; exit; }
done
printf '\033[1;32m$\033[0m '
echo 0 >"$code"
END
printf -v typed '%q ' bash "$folder/typed.sh" "$folder/code" "$@"
# Its own words are for people who record themselves.
TERM=xterm-256color asciinema rec --quiet --overwrite --cols "$columns" --rows "$rows" --command "$typed" \
  "$folder/recording.cast" </dev/null >"$folder/said" 2>&1 || { cat "$folder/said" >&2; exit 1; }
code=$(cat "$folder/code" 2>/dev/null || echo 1)
if [[ $code != 0 ]]; then
  echo "a command failed with exit code $code; $file is not written" >&2
  exit 1
fi

# Fewer frames until it is small enough: progress is redrawn many times a second.
for shortest in 40 80 160 320 640; do
  termtosvg render "$folder/recording.cast" "$folder/recording.svg" --template window_frame_powershell \
    --min-frame-duration "$shortest" --max-frame-duration "$longest" --loop-delay 5000 >/dev/null 2>"$folder/said" ||
    { cat "$folder/said" >&2; exit 1; }
  size=$(wc -c <"$folder/recording.svg")
  if ((size <= most)); then break; fi
done
if ((size > most)); then
  echo "the recording has $size bytes, and $most are the limit: record fewer commands, or raise MOST" >&2
  exit 1
fi
if ! grep -q '@keyframes' "$folder/recording.svg"; then
  echo "the recording does not move: the commands printed nothing" >&2
  exit 1
fi
cp "$folder/recording.svg" "$file"
echo "$file: $size bytes, $(grep -c '%{transform' "$folder/recording.svg") frames"
