#!/usr/bin/env bash
# `make demo`: two real nodes on this machine; a management cluster on the first, made by our own
# `up`; our operator in it, and a second cluster on the other node as an object. Ends with the
# second node as it was, and the first standing. Then a highly available cluster (tests/demo-ha.sh). YES=1
# skips all questions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=demo
namespace='rke-operator' credentials='rke-operator-credentials'
sample=samples/cluster-minimal.yaml
forward='' part=operator
. tests/demo-common.sh

end() {
  local code=$?
  trap - EXIT INT TERM
  if [[ -n $forward ]]; then root kill "$forward" 2>/dev/null || true; fi
  if ((code != 0)); then tell_failure "$code" >&2; fi
  exit "$code"
}

# What failed, and where to look. Only what is there is pointed at: an early failure has no logs.
tell_failure() {
  printf '\nthe demo failed with exit code %d at this step: %s\n' "$1" "$doing"
  local log
  if [[ -s $dir/kube_config_first.yml ]]; then
    first --namespace "$namespace" logs --selector app.kubernetes.io/name=rke-operator --prefix --tail=15 \
      >"$dir/operator.log" 2>/dev/null || true
  fi
  for log in "$dir/operator.log" "$dir/forward.log"; do
    if [[ -s $log ]]; then printf 'the last lines of %s:\n%s\n' "$log" "$(tail -n 15 "$log")"; fi
  done
  if [[ -x $lab ]] && lab status 2>/dev/null | grep -q "^lab $name:"; then
    printf 'its nodes stand; take them away with: make lab-down NAME=%s\n' "$name"
  fi
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

agree() {
  cat <<-TEXT
	This makes two Kubernetes nodes in containers on this machine, and later six, on networks of their own.
	It runs as root (or with sudo), starts Docker if it does not run, and keeps what it builds in
	${XDG_CACHE_HOME:-~root/.cache}. The first time it builds Kubernetes from source: half an hour.
	TEXT
  local packages
  packages=$(lab missing)
  if [[ -n $packages ]]; then echo "It installs these Debian packages: ${packages//$'\n'/ }"; fi
  if [[ ${YES:-} != 1 ]]; then
    read -r -p 'Go on? [y/n]: ' answer
    [[ $answer == y || $answer == Y ]] || {
      echo 'nothing was done'
      trap - EXIT
      exit 1
    }
  fi
  lab missing --install
}

# Prints the conditions of the Cluster whenever they change, until a deadline or a word says so.
watch_until() {
  local until=$1 seconds=$2 before='' now
  local deadline=$((SECONDS + seconds))
  while ((SECONDS < deadline)); do
    now=$(first get rkec second --ignore-not-found -o \
      'jsonpath={range .status.conditions[*]}{.type}={.status} ({.reason}){"\n"}{end}')
    if [[ $now != "$before" ]]; then
      printf '  %4ds\n' "$SECONDS"
      diff <(echo "$before") <(echo "$now") | sed -n 's/^> \(.\)/        \1/p' || true
      before=$now
    fi
    case $until in
      gone) if [[ -z $(first get rkec second --ignore-not-found -o name) ]]; then return 0; fi ;;
      *) if grep -q "^$until " <<<"$now"; then return 0; fi ;;
    esac
    sleep 1
  done
  echo "still not so after $seconds s: $until" >&2
  first describe rkec second >&2 || true
  return 1
}

step 'building rke-operator and the lab'
cargo build --locked --workspace --bins
agree

step 'two nodes that behave as servers: systemd, sshd, Docker'
root rm -rf "$dir"
mkdir -p "$dir/.ssh"
run lab up --name "$name" --nodes 2
kubectl=$(lab kubectl)
root cp "$(of_lab 'known hosts')" "$dir/.ssh/known_hosts"
lab config --name "$name" n1 >"$dir/first.yml"
lab config --name "$name" n2 >"$dir/second.yml"
state_of n2 >"$dir/second.before"

step 'a management cluster on the first node'
run cat "$dir/first.yml"
run rke plan --config "$dir/first.yml"
run rke up --config "$dir/first.yml" --yes
run first get nodes

step 'our operator in it, as two pods that the node pulls'
export DOCKER="${as_root[*]} docker"
export KUBECTL="${as_root[*]} KUBECONFIG=$dir/kube_config_first.yml $kubectl"
push=$(of_lab push)
run make --no-print-directory docker-build "IMG=$push/rke-operator:demo"
run make --no-print-directory docker-push "IMG=$push/rke-operator:demo"
# The nodes have another name for the registry.
run make --no-print-directory deploy IMG=registry.lab:5000/rke-operator:demo
run first -n "$namespace" get pods,leases
read -r secret key <<<"$(kubectl patch --local -f "$sample" --type merge -p '{}' \
  -o 'jsonpath={.spec.ssh.keySecretRef.name} {.spec.ssh.keySecretRef.key}')"
run first -n "$credentials" create secret generic "$secret" "--from-file=$key=$(of_lab key)"
run first -n "$credentials" annotate secret "$secret" clusterprovisioner.rke.io/clusters=second

step 'a cluster as an object, on the second node'
{
  printf 'metadata:\n  name: second\nspec:\n  ssh:\n    knownHosts: |\n'
  root cat "$(of_lab 'known hosts')" | sed 's/^/      /'
  printf '  config:\n'
  # A Cluster cannot name files, its key is in the Secret; its name is the sample's.
  sed -e '/ssh_key_path:/d' -e '/^cluster_name:/d' -e 's/^/    /' "$dir/second.yml"
} >"$dir/second.patch.yaml"
kubectl patch --local -f "$sample" --type merge --patch-file "$dir/second.patch.yaml" -o yaml >"$dir/second.cluster.yaml"
run cat "$dir/second.cluster.yaml"
run first apply -f "$dir/second.cluster.yaml"
watch_until 'Ready=True' 900
run first get clusters.clusterprovisioner.rke.io,kubeconfigs.clusterprovisioner.rke.io

step 'a pod in the new cluster'
first -n "$credentials" get secret second-kubeconfig -o 'jsonpath={.data.value}' | base64 -d >"$dir/second.kubeconfig"
chmod 600 "$dir/second.kubeconfig"
second apply -f tests/demo-pod.yaml
run second wait --for=condition=Ready --timeout=120s pod/hello
"${as_root[@]}" "$kubectl" --kubeconfig "$dir/second.kubeconfig" \
  port-forward --address 127.0.0.1 pod/hello 18080:8080 >"$dir/forward.log" 2>&1 &
forward=$!
for ((tries = 0; tries < 100; tries++)); do
  if grep -q 'Forwarding from' "$dir/forward.log"; then break; fi
  sleep 0.1
done
run curl --silent --show-error --fail http://127.0.0.1:18080/
root kill "$forward" 2>/dev/null || true
wait "$forward" 2>/dev/null || true
forward=''

step 'the object deleted, and its node given back'
run first delete rkec second --wait=false
watch_until gone 900
state_of n2 >"$dir/second.after"
if diff "$dir/second.before" "$dir/second.after"; then
  echo 'the second node is as it was before: containers, volumes, networks, links, routes, mounts, folders'
  echo 'system images stay for the next cluster; a removal leaves them'
else
  echo 'the second node is not as it was before; see the difference above' >&2
  exit 1
fi

step 'a highly available cluster on nodes of its own'
tests/demo-ha.sh

cat <<TEXT

== done in $((SECONDS / 60)) min $((SECONDS % 60)) s; the first cluster stands
  look at it    kubectl --kubeconfig $dir/kube_config_first.yml get pods -A
                (a kubectl: $kubectl)
  log in        make lab-ssh NAME=$name NODE=n1
  the operator  kubectl --kubeconfig $dir/kube_config_first.yml -n $namespace logs -l app.kubernetes.io/name=rke-operator
  take it away  make lab-down NAME=$name
TEXT
