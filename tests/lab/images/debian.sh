# shellcheck shell=sh
# Sourced by the recipes that stand on Debian.

# debian ROOTFS VARIANT PACKAGES: makes it, without manuals and without traces of this machine. SUITE is the release's
# name; without it, the one that everything but some nodes stands on. What is not released yet says until when its lists
# of packages count, and a mirror may be behind.
debian() {
    mmdebstrap --quiet --variant="$2" --skip=output/dev --include="$3" \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --aptopt='Acquire::Check-Valid-Until "false"' \
        "${SUITE:-trixie}" "$1"
    rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*.log "$1"/var/log/apt
    rm -f "$1/etc/hostname" "$1/etc/hosts" "$1/etc/resolv.conf" "$1/etc/apt/sources.list"
}
