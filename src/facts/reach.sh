# Tries TCP ports of other machines, each given as `address/port`, and prints those from which nothing
# comes back. A port that refuses was reached.
reach() {
  { command -v bash && command -v timeout && command -v xargs; } >/dev/null || return 0
  [ $# -gt 0 ] || return 0
  printf '%s\n' "$@" | xargs -P 100 -n 1 sh -c '
    said=$(timeout 4 bash -c "exec 3<>\"/dev/tcp/\$0\"" "$0" 2>&1)
    case $?:$said in
    0:* | *refused*) ;;
    124:*) echo "$0 silent" ;;
    *"No route"* | *unreachable*) echo "$0 rejected" ;;
    *"not permitted"* | *"ermission denied"*) echo "$0 forbidden" ;;
    *"not known"* | *"name resolution"*) echo "$0 unknown-name" ;;
    esac'
}
