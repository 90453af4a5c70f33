# One transaction on the node, run by systemd so that it outlives Docker and the SSH connection:
# check the new configuration with the node's own containerd, switch, restart, check whether CRI
# answers, and switch back automatically when it does not.
#
#   $1 result file: a marked line, `ok`, or `failed: …` and the reason
#   $2 configure | restore   $3 configuration (the new one is next to it, `.new`)
#   $4 drop-in   $5 the new drop-in   $6 rke-operator's drop-in under a former name
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
result=$1 verb=$2 config=$3 drop_in=$4 new_drop_in=$5 former=$6
drop_in_dir=${drop_in%/*}
deadline=20

report() { printf '@@rke-operator containerd %s\n' "$*" >"$result.new" && chmod 644 "$result.new" && mv "$result.new" "$result"; }

complaints() {
  journalctl "$@" --since "@$began" --output cat --no-pager 2>/dev/null |
    grep -iE 'level=(fatal|error)|containerd:|fail' | tail -n 2
}

# The end of containerd's log, as one line, for the error message. systemd's messages come after it
# and say only that the unit failed: they are used where containerd logged no error.
end_of_log() {
  journalctl --sync 2>/dev/null
  words=$(complaints _SYSTEMD_UNIT=containerd.service)
  [ -n "$words" ] || words=$(complaints --unit containerd)
  echo "$words" | tr '\n' ' ' | cut -c 1-400
}

cri_answers() {
  ctr --connect-timeout 2s --timeout 4s plugins ls 2>/dev/null |
    awk '$1 ~ /^io\.containerd\.grpc\.v1$/ && $2 == "cri" { found = ($NF == "ok") } END { exit !found }'
}

# The last `ExecStart` of the unit counts, and it may be another's.
is_read() {
  pid=$(systemctl show --property MainPID --value containerd.service)
  tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -e "$config"
}

containerd_answers() { ctr --connect-timeout 2s --timeout 4s version >/dev/null 2>&1; }

# Restarts containerd and waits for a question ($1) to be answered with yes; on a node whose
# Docker stops with containerd, Docker is started again.
restart() {
  systemctl daemon-reload
  systemctl reset-failed containerd.service 2>/dev/null
  systemctl restart containerd.service || return 1
  tries=0
  until "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt $((deadline * 5)) ] || return 1
    systemctl is-failed --quiet containerd.service && return 1
    sleep 0.2
  done
  systemctl is-active --quiet docker.service || systemctl start docker.service
}

save() { if [ -e "$1" ]; then mv "$1" "$1.before"; fi; }
unsave() { rm -f "$1"; if [ -e "$1.before" ]; then mv "$1.before" "$1"; fi; }

began=$(date +%s)
case $verb in
configure)
  if ! why=$(containerd --config "$config.new" config dump 2>&1 >/dev/null); then
    rm -f "$config.new" "$new_drop_in"
    report "failed: this node's containerd refuses the new configuration, nothing was changed: $(echo "$why" | tail -n 1)"
    exit 1
  fi
  save "$config"
  save "$drop_in"
  save "$former"
  mkdir -p "$drop_in_dir"
  mv "$config.new" "$config"
  mv "$new_drop_in" "$drop_in" && chmod 644 "$drop_in"
  if restart cri_answers && is_read; then
    rm -f "$config.before" "$drop_in.before" "$former.before"
    report ok
    exit 0
  fi
  why=$(end_of_log)
  if cri_answers && ! is_read; then
    why="another drop-in takes its ExecStart back, \`systemctl cat containerd\` shows which"
  fi
  unsave "$config"
  unsave "$drop_in"
  unsave "$former"
  rmdir "$drop_in_dir" 2>/dev/null
  if restart containerd_answers; then
    report "failed: containerd did not start with CRI on, the node runs its former configuration again: $why"
  else
    report "failed: containerd did not start with CRI on, and does not start with its former configuration either: $why"
  fi
  exit 1
  ;;
restore)
  rm -f "$config" "$config.new" "$config.before" "$drop_in" "$drop_in.before" "$new_drop_in" \
    "$former" "$former.before"
  rmdir "$drop_in_dir" 2>/dev/null
  if restart containerd_answers; then
    report ok
    exit 0
  fi
  report "failed: containerd does not start with the package's configuration: $(end_of_log)"
  exit 1
  ;;
esac
