#!/bin/sh
# The release's charts as the published image has them: nothing but one HelmChart object for each,
# with the chart's archive in base64. The charts are the lab's own, see charts/README.md.
set -eu
rootfs=$1

mkdir -p "$rootfs/charts"
for chart in charts/rke2-*; do
    name=${chart##*/}
    {
        printf 'apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: %s\n' "$name"
        printf '  namespace: kube-system\nspec:\n  bootstrap: true\n  chartContent: '
        tar --sort=name --numeric-owner --owner=0 --group=0 --mtime=@1767225600 --format=gnu \
            -C charts -cf - "$name" | gzip -n | base64 -w 0
        printf '\n'
    } > "$rootfs/charts/$name.yaml"
done
