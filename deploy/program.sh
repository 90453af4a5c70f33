#!/usr/bin/env bash
# The program as the image has it, for this machine's architecture; prints where it is. PROFILE=dev is faster to build. It is linked statically against
# glibc, whose resolver then needs nothing from a file system.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
profile=${PROFILE:-release}
triple="$(uname -m)-unknown-linux-gnu"
static='-C target-feature=+crt-static'

# What makes it a tenth smaller: functions with the same code are there once, and so are constants with the same bytes;
# relocations are packed. Not every linker has the first two, nor every glibc the last: a program that is made so must run
# here.
smaller=(
  -C 'link-arg=-Wl,--icf=all' -C 'link-arg=-Wl,--ignore-data-address-equality'
  -C 'link-arg=-Wl,-z,pack-relative-relocs'
)
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
echo 'fn main() { println!("{:?}", std::env::args()); }' >"$trial/trial.rs"
# shellcheck disable=SC2086 # several words
if ! { rustc $static "${smaller[@]}" --target "$triple" -o "$trial/trial" "$trial/trial.rs" && "$trial/trial"; } \
  >/dev/null 2>&1; then
  smaller=()
fi

# With --target, so that the flags are not those of build scripts and procedural macros.
RUSTFLAGS="${RUSTFLAGS:-} $static" \
  cargo rustc --profile "$profile" --locked --target "$triple" --bin rke-operator -- "${smaller[@]}"
# Cargo's folder of the profile `dev` has another name.
echo "$target/$triple/${profile/#dev/debug}/rke-operator"
