# shellcheck shell=sh
# Sourced by the recipes whose published image stands on busybox: sh and its applets as links.

# busybox_base ROOTFS [PACKAGE]: makes it, with the programs and libraries of a package if one is named.
busybox_base() {
    mkdir -p "$1/etc" "$1/tmp" "$1/root" "$1/var/run"
    chmod 1777 "$1/tmp"
    for folder in bin sbin lib lib64; do
        mkdir -p "$1/usr/$folder"
        ln -s "usr/$folder" "$1/$folder"
    done
    mmdebstrap --quiet --variant=extract --include=busybox-static"${2:+,$2}" trixie "$1.packages"
    if [ -n "${2:-}" ]; then
        rm -rf "$1.packages"/usr/lib/*/gconv "$1.packages"/usr/bin/[!b]*
        for folder in sbin lib lib64; do
            [ ! -d "$1.packages/usr/$folder" ] || cp -a "$1.packages/usr/$folder/." "$1/usr/$folder/"
        done
    fi
    cp "$1.packages/usr/bin/busybox" "$1/usr/bin/busybox"
    rm -rf "$1.packages"
    for applet in $("$1/usr/bin/busybox" --list); do
        [ -e "$1/usr/bin/$applet" ] || [ -e "$1/usr/sbin/$applet" ] ||
            ln -s busybox "$1/usr/bin/$applet"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' > "$1/etc/passwd"
    echo 'root:x:0:' > "$1/etc/group"
}
