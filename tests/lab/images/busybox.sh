# Sourced by the recipes whose published image stands on busybox: sh and its applets as links.
busybox_base() {
    mmdebstrap --quiet --variant=extract --skip=output/dev --include=busybox-static"${2:+,$2}" \
        trixie "$1"
    for folder in bin sbin lib lib64; do
        mkdir -p "$1/usr/$folder"
        [ -e "$1/$folder" ] || ln -s "usr/$folder" "$1/$folder"
    done
    rm -rf "$1/usr/share" "$1/etc/dpkg" "$1/var" "$1/boot" "$1/home" "$1/media" "$1/mnt" "$1/srv"
    mkdir -p "$1/etc" "$1/tmp" "$1/root" "$1/proc" "$1/sys" "$1/dev" "$1/var/run"
    chmod 1777 "$1/tmp"
    for applet in $("$1/usr/bin/busybox" --list); do
        [ -e "$1/usr/bin/$applet" ] || [ -e "$1/usr/sbin/$applet" ] ||
            ln -s busybox "$1/usr/bin/$applet"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' > "$1/etc/passwd"
    echo 'root:x:0:' > "$1/etc/group"
}
