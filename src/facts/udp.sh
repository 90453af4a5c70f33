# Sends datagrams to UDP ports of other machines, `COUNT NAME address/port…`, one every 0.4 s until something comes
# back, and prints those from which nothing does. Where no program listens, the kernel of the other machine says so:
# the port was reached.
datagrams() {
  { command -v bash && command -v timeout && command -v xargs; } >/dev/null || return 0
  [ $# -gt 2 ] || return 0
  count=$1 name=$2
  shift 2
  # `read` takes one letter, and the rest of that datagram is gone. It fails with 1 for an error.
  # shellcheck disable=SC2016 # For bash.
  send='exec 3<>"/dev/udp/$0" || exit
    for ((i = 0; i < $1; i++)); do
      printf "rke-operator %s\n" "$2" >&3 || exit
      read -r -n 1 -t 0.4 -u 3 _
      (($? > 128)) || exit
    done
    echo silent'
  printf '%s\n' "$@" | COUNT=$count NAME=$name SEND=$send xargs -P 100 -n 1 sh -c '
    said=$(timeout $((COUNT / 2 + 3)) bash -c "$SEND" "$0" "$COUNT" "$NAME" 2>&1)
    case $?:$said in
    *refused*) ;;
    124:* | *silent) echo "$0 silent" ;;
    *"No route"* | *unreachable*) echo "$0 rejected" ;;
    *"not permitted"* | *"ermission denied"*) echo "$0 forbidden" ;;
    esac'
}
