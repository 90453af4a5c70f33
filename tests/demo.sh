#!/usr/bin/env bash
# `make demo`: seven real nodes on this machine. A management cluster on the first, made by our own `up`; our operator
# in it, as two pods; and a second cluster on the others as an object, which is watched, used, scaled, broken, upgraded
# by an approved plan, and deleted. Ends with those nodes as they were, and the first standing. YES=1 skips all questions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=demo
namespace='rke-operator' credentials='rke-operator-credentials'
sample=samples/cluster-minimal.yaml
# What the object asks for first, and what it is upgraded to.
old=v1.33.13 new=v1.34.4
part=operator
. tests/demo-common.sh

end() {
  local code=$?
  trap - EXIT INT TERM
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
  log="$dir/operator.log"
  if [[ -s $log ]]; then printf 'the last lines of %s:\n%s\n' "$log" "$(tail -n 15 "$log")"; fi
  tell_nodes
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# One value of the Cluster, by its path.
of_cluster() { first get rkec second --ignore-not-found -o "jsonpath={$1}"; }

# True when what its spec asks for is there, and nothing is under way.
settled() {
  local wanted seen ready busy
  read -r wanted seen ready busy <<<"$(first get rkec second -o 'jsonpath={.metadata.generation} {.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Reconciling")].status}')"
  [[ $wanted == "$seen" && $ready == True && -z $busy ]]
}

gone() { [[ -z $(of_cluster .metadata.name) ]]; }
waits_for_approval() { [[ -n $(of_cluster .status.pendingPlan.digest) ]]; }
# A condition with another status than True.
suffers() { [[ $(of_cluster ".status.conditions[?(@.type==\"$1\")].status") == False ]]; }

# What was printed of the conditions last.
shown=''

# Prints the conditions of the Cluster whenever they change, until something is so or the time is over.
watch_until() {
  local what=$1 seconds=$2 now so=no begun=$SECONDS
  shift 2
  while ((SECONDS - begun < seconds)); do
    # First: what makes it so is printed, too.
    if "$@"; then so=yes; fi
    now=$(of_cluster 'range .status.conditions[*]}{.type}={.status} ({.reason}){"\n"}{end')
    if [[ $now != "$shown" ]]; then
      printf '  %4ds\n' $((SECONDS - begun))
      diff <(echo "$shown") <(echo "$now") | sed -n 's/^> \(.\)/        \1/p' || true
      shown=$now
    fi
    if [[ $so == yes ]]; then return 0; fi
    # Each look is two programs: more of them slow down what is looked at.
    sleep 2
  done
  echo "still not so after $seconds s: $what" >&2
  first describe rkec second >&2 || true
  return 1
}

# The config of a cluster on these nodes as an object has it: a Cluster cannot name files, its key is in a Secret.
config_of() { lab config --name "$name" "$@" | sed -e '/ssh_key_path:/d' -e '/^cluster_name:/d'; }

step 'building the lab'
cargo build --locked --package lab
agree seven 'The first time it builds two releases of Kubernetes from source: three quarters of an hour.'

step 'building rke-operator: one static program, here and in its image'
rke=$(deploy/program.sh)

step 'seven nodes that behave as servers: systemd, sshd, Docker'
root rm -rf "$dir"
mkdir -p "$dir/.ssh"
run lab up --name "$name" --nodes 7 --release "$old"
kubectl=$(lab kubectl)
root cp "$(of_lab 'known hosts')" "$dir/.ssh/known_hosts"
lab config --name "$name" n1 >"$dir/first.yml"
members='n2 n3 n4 n5 n6 n7'
for node in $members; do state_of "$node" >"$dir/$node.before"; done
begun=$SECONDS

step 'a management cluster on the first node, by command line'
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

step 'a cluster as an object: three nodes with everything, two workers'
{
  printf 'metadata:\n  name: second\nspec:\n  ssh:\n    knownHosts: |\n'
  root cat "$(of_lab 'known hosts')" | sed 's/^/      /'
  printf '  config:\n'
  config_of n2 n3 n4 n5=worker n6=worker | sed -e 's/^/    /'
  printf '    kubernetes_version: %s\n' "$old"
} >"$dir/second.patch.yaml"
kubectl patch --local -f "$sample" --type merge --patch-file "$dir/second.patch.yaml" -o yaml >"$dir/second.cluster.yaml"
run cat "$dir/second.cluster.yaml"
run first create -f "$dir/second.cluster.yaml"
watch_until 'it is Ready' 900 settled
run first get clusters.clusterprovisioner.rke.io,kubeconfigs.clusterprovisioner.rke.io
run rke describe second --kubeconfig "$dir/kube_config_first.yml"

step 'it is used: a Service with three pods on three nodes'
first -n "$credentials" get secret second-kubeconfig -o 'jsonpath={.data.value}' | base64 -d >"$dir/second.kubeconfig"
chmod 600 "$dir/second.kubeconfig"
run second apply -f tests/demo-service.yaml
run second rollout status deployment/web --timeout=180s
run second get pods -o wide
worker=$(address_of n5)
serves 50 "$worker"

step 'scaled by an edit: a third worker'
{
  printf 'spec:\n  config:\n'
  config_of n2 n3 n4 n5=worker n6=worker n7=worker | sed -n '/^nodes:/,/^[^ -]/{/^nodes:/p;/^[ -]/p}' | sed 's/^/    /'
} >"$dir/third-worker.yaml"
run cat "$dir/third-worker.yaml"
run first patch rkec second --type merge --patch-file "$dir/third-worker.yaml"
watch_until 'the third worker is Ready' 300 settled
run second get nodes

step 'broken: the API server of a control plane is stopped'
run lab ssh --name "$name" n3 docker stop kube-apiserver
watch_until 'the condition tells it' 120 suffers ControlPlaneHealthy
watch_until 'it is healed' 120 settled
serves 50 "$worker"

step 'upgraded by an edit, when its plan is approved'
run first patch rkec second --type merge \
  --patch '{"spec":{"changes":"Approve","config":{"kubernetes_version":"'"$new"'"}}}'
watch_until 'its plan waits' 120 waits_for_approval
run rke describe second --kubeconfig "$dir/kube_config_first.yml"
digest=$(of_cluster .status.pendingPlan.digest)
user=$(first auth whoami -o 'jsonpath={.status.userInfo.username}')
run first annotate rkec second "clusterprovisioner.rke.io/approve=$digest" "clusterprovisioner.rke.io/approved-by=$user"
watch_until 'it is upgraded' 600 settled
run second get nodes
serves 50 "$worker"

step 'deleted: not while it is protected'
run first patch rkec second --type merge --patch '{"spec":{"deletionProtection":true}}'
code=0
run first delete rkec second --wait=false || code=$?
((code != 0)) || {
  echo 'a protected Cluster was deleted' >&2
  exit 1
}
run first patch rkec second --type merge --patch '{"spec":{"deletionProtection":false}}'
run first delete rkec second --wait=false
watch_until 'it is gone' 600 gone
for node in $members; do
  # Snapshots of etcd are nobody's to delete with the cluster: where one was taken, its folder stays.
  state_of "$node" | grep -v '^/opt/rke$' >"$dir/$node.after"
  if ! diff "$dir/$node.before" "$dir/$node.after"; then
    echo "$node is not as it was before; see the difference above" >&2
    exit 1
  fi
done
echo 'the nodes are as they were before: containers, volumes, networks, links, routes, mounts, folders'
# Only root reads the folder; who may use Docker mounts it.
# shellcheck disable=SC2016 # the node expands it
list='docker run --rm --network none --volume /opt/rke/etcd-snapshots:/snapshots:ro --entrypoint ls \
  "$(docker images --quiet rancher/hardened-kubernetes | head -n 1)" -1 /snapshots'
snapshots=$(for node in n2 n3 n4; do lab ssh --name "$name" "$node" "$list"; done)
echo "$snapshots"
for snapshot in "before-$new" before-removal; do
  grep -q "^$snapshot" <<<"$snapshots" || {
    echo "no node has the snapshot $snapshot" >&2
    exit 1
  }
done
echo 'a removal leaves system images for the next cluster, and the snapshots of etcd in /opt/rke/etcd-snapshots'

cat <<TEXT

== done in $((SECONDS / 60)) min $((SECONDS % 60)) s, $begun s of them for programs and nodes; the first cluster stands
  look at it    kubectl --kubeconfig $dir/kube_config_first.yml get pods -A
                (a kubectl: $kubectl)
  log in        make lab-ssh NAME=$name NODE=n1
  the operator  kubectl --kubeconfig $dir/kube_config_first.yml -n $namespace logs -l app.kubernetes.io/name=rke-operator
  take it away  make lab-down NAME=$name
TEXT
