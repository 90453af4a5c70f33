# Hands the transaction to systemd, so that it outlives Docker and this container.
#   $1 unit   $2 result file   $3 where the script goes   $4 the script   then its arguments
unit=$1 result=$2 script=$3 text=$4
shift 4
while systemctl is-active --quiet "$unit"; do sleep 0.2; done
rm -f "$result"
mkdir -p "${script%/*}" && (umask 077 && printf '%s\n' "$text" >"$script") || exit 1
systemctl reset-failed "$unit" 2>/dev/null
exec systemd-run --no-block --collect --quiet --unit="$unit" \
  /bin/sh -c 'sh "$@"; status=$?; rm -f "$1"; exit $status' sh "$script" "$result" "$@"
