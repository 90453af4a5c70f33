#!/bin/sh
# Installs a release of rke-operator, without sudo:
#
#   curl -fsSL https://github.com/rke-operator/rke-operator/releases/latest/download/install.sh | sh
#
# Finds the program for this machine, checks it against the SHA256SUMS of the same release, and moves it into place as
# the last step: what stops earlier, changes nothing. `install.sh --help` lists the options.
set -eu

name=rke-operator
github=https://github.com/rke-operator/rke-operator/releases

usage() {
  cat <<END
Install a release of $name: install.sh [OPTIONS]

  --version VERSION  Release to install, for example 0.1.0 [default: the newest one]
  --from SOURCE      Folder or address with the files of a release, for example dist or a mirror
                     [default: \$RKE_OPERATOR_RELEASES, or $github]
  --to FOLDER        Folder for the program [default: /usr/local/bin if you may write to it, or ~/.local/bin]
  --help             Print this help
END
}

# Prints the error and its cure, and exits.
fail() {
  printf 'error: %s\n  hint: %s\n' "$1" "$2" >&2
  exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# Writes a file of the release to a path.
fetch() {
  case $source in
    *://*) download "$source/$1" "$2" ;;
    *) [ -f "$source/$1" ] && cp "$source/$1" "$2" ;;
  esac
}

# An address that begins with https is not left for another kind by a redirection.
download() {
  if has curl; then
    case $1 in
      https://*) curl --fail --silent --show-error --location --retry 3 --proto '=https' --output "$2" "$1" ;;
      *) curl --fail --silent --show-error --location --retry 3 --output "$2" "$1" ;;
    esac
  elif has wget; then
    # BusyBox has no other flags.
    wget -q -O "$2" "$1"
  else
    fail 'neither curl nor wget is installed' "install one of them, or name a folder with the release's files: --from FOLDER"
  fi
}

checksum() {
  if has sha256sum; then
    sha256sum "$1"
  elif has shasum; then
    shasum -a 256 "$1"
  else
    fail 'cannot verify the program: neither sha256sum nor shasum is installed' 'install coreutils'
  fi
}

# The part of the file names that says for which machine a program is.
platform() {
  system=$(uname -s)
  if [ "$system" != Linux ]; then
    fail "releases have no program for $system" "build it with Rust, in a clone of the repository: cargo install --locked --path ."
  fi
  machine=$(uname -m)
  case $machine in
    x86_64 | amd64) echo linux-amd64 ;;
    aarch64 | arm64) echo linux-arm64 ;;
    *) fail "releases have no program for $machine" "build it with Rust, in a clone of the repository: cargo install --locked --path ." ;;
  esac
}

# The folder for the program.
folder() {
  if [ -n "$to" ]; then
    echo "$to"
  elif [ -d /usr/local/bin ] && [ -w /usr/local/bin ]; then
    echo /usr/local/bin
  elif [ -n "${HOME:-}" ]; then
    echo "$HOME/.local/bin"
  else
    fail 'HOME is not set, and you may not write to /usr/local/bin' 'name a folder: --to FOLDER'
  fi
}

cannot_write() {
  fail "cannot write to $1" 'name another folder with --to, or run the script as a user who may write to it'
}

# The checksum that SHA256SUMS has for a file.
listed() {
  while read -r sum entry; do
    if [ "${entry#\*}" = "$1" ]; then
      echo "$sum"
      break
    fi
  done <"$2"
}

clean_up() {
  if [ -n "$temporary" ]; then rm -rf "$temporary"; fi
}

main() {
  version='' source=${RKE_OPERATOR_RELEASES:-} to='' temporary=''
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h)
        usage
        exit 0
        ;;
      --version | --from | --to)
        [ -n "${2:-}" ] || fail "$1 needs a value" 'install.sh --help lists the options'
        case $1 in
          --version) version=${2#v} ;;
          --from) source=$2 ;;
          --to) to=$2 ;;
        esac
        shift 2
        ;;
      *) fail "there is no option $1" 'install.sh --help lists the options' ;;
    esac
  done
  source=${source%/}
  if [ -n "$source" ]; then
    other='name a folder or an address that has the files of this release: --from SOURCE'
  elif [ -n "$version" ]; then
    source="$github/download/v$version"
    other="see which releases there are: $github"
  else
    source="$github/latest/download"
    other="see which releases there are: $github; name a mirror or a folder with --from"
  fi
  case $source in
    file://*) source=${source#file://} ;;
  esac
  platform=$(platform)
  to=$(folder)

  mkdir -p "$to" || cannot_write "$to"
  if [ -d "$to/$name" ]; then
    fail "$to/$name is a folder" 'name another folder with --to, or rename that one'
  fi
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  # In the same file system: the last step is a rename.
  temporary=$(mktemp -d "$to/.$name.XXXXXX") || cannot_write "$to"

  sums=$temporary/SHA256SUMS
  fetch SHA256SUMS "$sums" || fail "cannot get SHA256SUMS from $source" "$other"
  file=$(sed -n "s/^[0-9a-f]\{64\}[ *]*\($name-[0-9A-Za-z.+-]*-$platform\)\$/\1/p" "$sums")
  if [ -n "$version" ]; then
    wanted="$name-$version-$platform"
    file=$(printf '%s\n' "$file" | grep -Fx "$wanted" || true)
    [ -n "$file" ] || fail "the release at $source has no $wanted" "$other"
  fi
  case $(printf '%s\n' "$file" | grep -c .) in
    1) ;;
    0) fail "the release at $source has no program for $platform" "$other" ;;
    *) fail "$source has several releases" 'name one of them: --version VERSION' ;;
  esac

  fetch "$file" "$temporary/$name" || fail "cannot get $file from $source" "$other"
  wanted=$(listed "$file" "$sums")
  found=$(checksum "$temporary/$name")
  found=${found%% *}
  if [ "$found" != "$wanted" ]; then
    fail "$file from $source has another checksum than SHA256SUMS says: $found instead of $wanted" \
      'it is damaged or was replaced, and is not installed: try again, or get it from another source with --from'
  fi
  chmod 755 "$temporary/$name"
  installed=$("$temporary/$name" --version) ||
    fail "$file does not run on this machine, in $to" "name a folder whose file system allows programs: --to FOLDER"
  mv -f "$temporary/$name" "$to/$name" || cannot_write "$to"

  echo "$installed is installed: $to/$name"
  first=$(command -v "$name" || true)
  if [ -z "$first" ]; then
    echo "$to is not on your PATH; add it: export PATH=\"$to:\$PATH\""
  elif [ "$first" != "$to/$name" ]; then
    echo "another program comes first on your PATH: $first"
  fi
  echo "next: $name config    # asks for your servers and writes cluster.yml"
}

# In a function: of a script that was cut off on its way, nothing is run.
main "$@"
