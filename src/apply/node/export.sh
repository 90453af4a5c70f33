# Writes an image of containerd's namespace `k8s.io` into an archive, as `docker save` does.
#   $1 the archive   $2 the image, as containerd names it
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
names=$(timeout -k 5 50 ctr --namespace k8s.io images ls -q) || exit 1
printf '%s\n' "$names" | grep -qxF -- "$2" || exit 44
umask 077
timeout -k 5 1500 ctr --namespace k8s.io images export "$1" "$2" && exit
rm -f "$1"
exit 1
