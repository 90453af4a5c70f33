#!/bin/sh
# What Kubernetes' own tests run in pods, but for busybox: its test programs, built from its modules, and
# Debian's programs, all in one layer that is pulled once. recipe.yml has how each image is started.
set -eu
rootfs=$1
. ../debian.sh

packages=bind9-dnsutils,curl,iproute2,netcat-openbsd,nginx-light,busybox-static
debian "$rootfs" essential "$packages"
# The published images' shell knows `[[`, and Debian's does not.
ln -sf bash "$rootfs/usr/bin/sh"
# Whatever else a shell's lines call is busybox; a program that is there stays.
for applet in $("$rootfs/usr/bin/busybox" --list); do
    [ -e "$rootfs/usr/sbin/$applet" ] || ln -s busybox "$rootfs/usr/bin/$applet" 2> /dev/null || true
done

# agnhost, and nautilus, which is agnhost with a picture.
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$rootfs/agnhost" k8s.io/kubernetes/test/images/agnhost
ln -s agnhost "$rootfs/agnhost-2"
mkdir "$rootfs/uploads"
kubernetes=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images
for file in agnhost/porter/localhost.crt agnhost/porter/localhost.key nautilus/html/nautilus.jpg nautilus/html/data.json; do
    install -m 0644 "$kubernetes/$file" "$rootfs/"
done
printf 'user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n' >> "$rootfs/etc/passwd"
printf '%s\n' 'user-defined-in-image:x:1000:' 'group-defined-in-image:x:50000:user-defined-in-image' >> "$rootfs/etc/group"

# nginx, which is httpd as well: tests move httpd's only page away and back.
htdocs=$rootfs/usr/local/apache2/htdocs
mkdir -p "$htdocs"
printf '<html><body><h1>It works!</h1></body></html>\n' > "$htdocs/index.html"
install -m 0644 nginx.conf "$rootfs/etc/nginx/e2e.conf"

# nonewprivs: says as whom it runs, and is root's to whoever starts it.
CGO_ENABLED=0 go build -ldflags '-s -w' -o "$rootfs/usr/local/bin/nnp" k8s.io/kubernetes/test/images/nonewprivs
chmod 4755 "$rootfs/usr/local/bin/nnp"

CGO_ENABLED=0 go build -ldflags '-s -w' -o "$rootfs/sample-apiserver" k8s.io/sample-apiserver
