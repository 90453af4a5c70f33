#!/usr/bin/env bash
# `make dist`: what a release consists of, in dist/: a static program for each architecture with its SBOM, as a file and
# as an archive with the licence, the chart, the definitions, install.sh, a formula for Homebrew, a manifest for krew, and
# the checksums of all. Installs nothing: what is missing is listed, with the command that brings it.
#
# HELM names another helm, DIST another folder, TARGETS other targets of Rust.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

read -ra helm <<<"${HELM:-helm}"
read -ra targets <<<"${TARGETS:-x86_64-unknown-linux-musl aarch64-unknown-linux-musl}"
dist=${DIST:-dist}
built=${CARGO_TARGET_DIR:-target}
name=rke-operator
missing=()

# An architecture as Kubernetes calls it.
architecture() {
  case ${1%%-*} in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) echo "${1%%-*}" ;;
  esac
}

# Notes what a command needs that does not work; the rest of the arguments is the command.
need() {
  local what=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$what")
}

# The program under its plain name, with the licence: what package managers unpack. The same files give the same bytes.
archive() {
  local folder
  folder=$(mktemp -d)
  install -m 755 "$dist/$1" "$folder/$name"
  install -m 644 LICENSE "$folder/LICENSE"
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --format=ustar \
    --directory "$folder" LICENSE "$name" | gzip --no-name >"$dist/$1.tar.gz"
  rm -r "$folder"
}

sha256_of() { sha256sum "$dist/$1" | cut -d ' ' -f 1; }

# A template with the version and the checksums of this release.
fill_in() {
  sed -e "s|@VERSION@|$version|g" -e "s|@REPOSITORY@|$repository|g" \
    -e "s|@DOWNLOAD@|$repository/releases/download/v$version|g" \
    -e "s|@SHA256_AMD64@|$(sha256_of "$name-$version-linux-amd64.tar.gz")|g" \
    -e "s|@SHA256_ARM64@|$(sha256_of "$name-$version-linux-arm64.tar.gz")|g" "$1"
}

has_zig() { zig version || python3 -m ziglang version; }
has_target() { [[ -d $(rustc --print target-libdir --target "$1") ]]; }

for target in "${targets[@]}"; do
  need "Rust's library for $target: rustup target add $target" has_target "$target"
done
need 'cargo-zigbuild, which compiles C for other machines: pip install cargo-zigbuild' cargo zigbuild --help
need 'zig, its compiler: pip install ziglang' has_zig
need 'cargo-cyclonedx, which writes SBOMs: cargo install --locked cargo-cyclonedx' cargo cyclonedx --version
need 'helm 3 or later: https://helm.sh/docs/intro/install, or name another in HELM' "${helm[@]}" version
need 'readelf, which shows whether a program is static: binutils' readelf --version
if ((${#missing[@]} > 0)); then
  echo 'make dist needs:' >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi

version=$(sed -nE '0,/^version = "(.+)"$/s//\1/p' Cargo.toml)
repository=$(sed -nE 's/^repository = "(.+)"$/\1/p' Cargo.toml)
# Names of files on this machine are not part of a release.
paths="--remap-path-prefix=$PWD=/$name --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
# As in program.sh. Rust's own linker has these flags, and zig's does not; its musl reads packed relocations.
smaller='-C linker=rust-lld -C link-arg=--icf=all -C link-arg=--ignore-data-address-equality -C link-arg=--pack-dyn-relocs=relr'
rm -rf "$dist"
mkdir -p "$dist"

for target in "${targets[@]}"; do
  file="$name-$version-linux-$(architecture "$target")"
  RUSTFLAGS="${RUSTFLAGS:-} $paths $smaller" cargo zigbuild --release --locked --target "$target" --bin "$name"
  install -m 755 "$built/$target/release/$name" "$dist/$file"
  if readelf --program-headers "$dist/$file" | grep -q INTERP; then
    echo "$dist/$file is not static: it wants a loader" >&2
    exit 1
  fi
  if [[ ${target%%-*} == "$(uname -m)" ]] && ! "$dist/$file" --version >/dev/null; then
    echo "$dist/$file does not run" >&2
    exit 1
  fi
  # Of this package alone, and not of the tests and benchmarks of the workspace.
  cargo cyclonedx --quiet --format json --target "$target" --override-filename "$name.cdx" --manifest-path Cargo.toml
  sed "s|$PWD|/$name|g" "$name.cdx.json" >"$dist/$file.cdx.json"
  rm "$name.cdx.json"
  find bench tests/lab -name "$name.cdx.json" -delete
  archive "$file"
done

"${helm[@]}" package --destination "$dist" deploy/chart >/dev/null
cat deploy/chart/crds/*.yaml >"$dist/$name-$version-crds.yaml"
install -m 755 deploy/install.sh "$dist/install.sh"
if [[ -f $dist/$name-$version-linux-amd64.tar.gz && -f $dist/$name-$version-linux-arm64.tar.gz ]]; then
  fill_in deploy/formula.rb.in >"$dist/$name.rb"
  fill_in deploy/krew.yaml.in >"$dist/$name.yaml"
else
  echo "no $name.rb and no $name.yaml: they need the programs for amd64 and arm64" >&2
fi
(cd "$dist" && sha256sum -- * >SHA256SUMS)
(cd "$dist" && du --apparent-size --human-readable -- *)
