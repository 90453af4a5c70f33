# Loads modules and sets sysctls now; the files for the next boot are written with the others.
# MODULES and SYSCTLS are filled in by the caller.
PATH=$PATH:/usr/sbin:/sbin
status=0
for module in MODULES; do
  [ -d "/sys/module/$module" ] || modprobe "$module" 2>/dev/null ||
    { echo "module $module cannot be loaded"; status=1; }
done
for setting in SYSCTLS; do
  name=${setting%%=*} value=${setting#*=}
  file=/proc/sys/$(echo "$name" | tr . /)
  [ "$(cat "$file" 2>/dev/null)" = "$value" ] && continue
  echo "$value" 2>/dev/null >"$file" || { echo "sysctl $name cannot be set to $value"; status=1; }
done
exit "$status"
