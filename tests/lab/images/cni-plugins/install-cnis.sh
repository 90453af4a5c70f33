#!/bin/sh
# Copies the plugins to /host/opt/cni/bin: not those that SKIP_CNI_BINARIES names (with commas
# between), and not over those that are there if UPDATE_CNI_BINARIES is not "true".
target=/host/opt/cni/bin
if [ ! -w "$target" ]; then
    echo "$target is non-writeable, skipping"
    exit 0
fi
for plugin in /opt/cni/bin/*; do
    name=${plugin##*/}
    case ,${SKIP_CNI_BINARIES:-}, in
    *,"$name",*) echo "$name is in SKIP_CNI_BINARIES, skipping" ;;
    *)
        if [ "${UPDATE_CNI_BINARIES:-true}" != true ] && [ -f "$target/$name" ]; then
            echo "$target/$name is already here and UPDATE_CNI_BINARIES isn't true, skipping"
        else
            cp "$plugin" "$target/" || exit 1
            echo "copied $plugin to $target correctly"
        fi
        ;;
    esac
done
