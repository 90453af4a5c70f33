#!/bin/bash
# Debian's stream module is a file that has to be loaded; nginx takes one -g only.
globals="load_module /usr/lib/nginx/modules/ngx_stream_module.so;"
rest=()
while [ $# -gt 0 ]; do
    case $1 in
    -g) globals="$globals $2" && shift ;;
    *) rest+=("$1") ;;
    esac
    shift
done
exec -a nginx /usr/lib/nginx/nginx -g "$globals" "${rest[@]}"
