# Loads modules and sets sysctls now; the files for the next boot are written with the others.
# Each argument is a module, or `name=value` of a sysctl.
PATH=$PATH:/usr/sbin:/sbin
status=0
for wanted in "$@"; do
  case $wanted in
  *=*)
    name=${wanted%%=*} value=${wanted#*=}
    file=/proc/sys/$(printf '%s' "$name" | tr . /)
    [ "$(cat "$file" 2>/dev/null)" = "$value" ] && continue
    { printf '%s\n' "$value" >"$file"; } 2>/dev/null ||
      { printf 'sysctl %s cannot be set to %s\n' "$name" "$value"; status=1; }
    ;;
  *)
    [ -d "/sys/module/$wanted" ] || modprobe "$wanted" 2>/dev/null ||
      { printf 'module %s cannot be loaded\n' "$wanted"; status=1; }
    ;;
  esac
done
exit "$status"
