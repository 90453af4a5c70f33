# Calls a function with each argument of a kind, which are `kind=word`.
each() {
  kind=$1 call=$2
  shift 2
  for word; do
    case $word in "$kind="*) "$call" "${word#*=}" ;; esac
  done
}
