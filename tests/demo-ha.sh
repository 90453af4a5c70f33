#!/usr/bin/env bash
# The second part of `make demo`: a highly available cluster on five real nodes, of which one is switched off
# while a Service goes on; a sixth joins as a worker; and every node is given back.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=demo-ha part=ha
. tests/demo-common.sh
ha() { kubectl --kubeconfig "$dir/kube_config_ha.yml" "$@"; }

end() {
  local code=$?
  trap - EXIT INT TERM
  if ((code != 0)); then
    printf '\nthe demo failed with exit code %d at this step: %s\n' "$code" "$doing"
    printf 'its nodes stand; take them away with: make lab-down NAME=%s\n' "$name"
  fi >&2
  exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The config of a cluster on these nodes, in the file that is edited all the while: RKE's defaults, so that canal,
# nginx and metrics-server come from the lab's small stand-ins for the charts of the release.
wants() { lab config --name "$name" --rke-defaults "$@" >"$dir/ha.yml"; }

# The Service answers through a node's own port; one try more is allowed to each request.
serves() {
  local wanted=$1 address=$2 answered=0
  for ((request = 0; request < wanted; request++)); do
    if curl --silent --fail --max-time 2 --retry 1 --retry-delay 0 --retry-all-errors \
      "http://$address:30080/" >/dev/null; then answered=$((answered + 1)); fi
  done
  echo "$answered of $wanted requests to http://$address:30080/ were answered"
  ((answered == wanted))
}

step "six nodes, of which five are to be a cluster with RKE's defaults: three with everything, two workers"
root rm -rf "$dir"
mkdir -p "$dir/.ssh"
run lab up --name "$name" --nodes 6
kubectl=$(lab kubectl)
root cp "$(of_lab 'known hosts')" "$dir/.ssh/known_hosts"
for node in n1 n2 n3 n4 n5 n6; do state_of "$node" >"$dir/$node.before"; done
wants n1 n2 n3 n4=worker n5=worker
run cat "$dir/ha.yml"

step 'the cluster'
run rke up --config "$dir/ha.yml" --yes
run rke status --config "$dir/ha.yml"
run ha top nodes

step 'a Service with three pods on three nodes'
run ha apply -f tests/demo-service.yaml
run ha rollout status deployment/web --timeout=180s
run ha get pods -o wide
worker=$(lab status | awk -v lab="lab $name:" 'index($0, "lab ") == 1 { on = index($0, lab) == 1 } on && $1 == "n4" { print $2; exit }')
serves 50 "$worker"

step "n2, with a member of etcd and a control plane, is switched off"
run lab fault --name "$name" n2 off
for ((tries = 0; tries < 90; tries++)); do
  if ha get node n2 --no-headers 2>/dev/null | grep -q NotReady; then break; fi
  sleep 1
done
run ha get nodes
serves 50 "$worker"
code=0
run rke up --config "$dir/ha.yml" --yes || code=$?
echo "exit code $code: the rest is as the config says, and n2 is missing"
((code == 3))

step 'n2 is back'
run lab heal --name "$name" n2
run ha wait --for=condition=Ready --timeout=180s node/n2
run rke up --config "$dir/ha.yml" --yes

step 'a worker more'
wants n1 n2 n3 n4=worker n5=worker n6=worker
run rke up --config "$dir/ha.yml" --yes
run ha get nodes
serves 50 "$worker"

step 'every node given back'
run rke remove --config "$dir/ha.yml" --force
# What the Docker of a node that was off has made anew since is not as it was.
for node in n1 n3 n4 n5 n6; do
  state_of "$node" >"$dir/$node.after"
  if ! diff "$dir/$node.before" "$dir/$node.after"; then
    echo "$node is not as it was before; see the difference above" >&2
    exit 1
  fi
done
echo 'the nodes are as they were before: containers, volumes, networks, links, routes, mounts, folders'
run lab down --name "$name"
printf '\n== done in %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
