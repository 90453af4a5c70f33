#!/usr/bin/env bash
# `make docker-build IMG=…`: the operator's image, for this machine's architecture, with what `program.sh` builds. DOCKER
# names another docker, as in `sudo docker`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

img=${1:?'usage: deploy/image.sh IMAGE, for example registry.example.com/rke-operator:dev'}
read -ra docker <<<"${DOCKER:-docker}"
folder="${CARGO_TARGET_DIR:-target}/image"
certificates=${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}

if [[ ! -s $certificates ]]; then
  echo "there is no $certificates: install ca-certificates, or name another bundle in CA_BUNDLE" >&2
  exit 1
fi
program=$(deploy/program.sh)

mkdir -p "$folder"
cp --force --dereference "$program" "$folder/rke-operator"
cp --force --dereference "$certificates" "$folder/ca-certificates.crt"
version=$("$program" --version)
"${docker[@]}" build --quiet --file deploy/Dockerfile --tag "$img" \
  --build-arg "VERSION=${version##* }" \
  --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || true)" \
  --build-arg "CREATED=$(git log -1 --format=%cI 2>/dev/null || true)" \
  "$folder" >/dev/null
size=$("${docker[@]}" image inspect --format '{{.Size}}' "$img")
echo "$img: $((size / 1000000)) MB"
