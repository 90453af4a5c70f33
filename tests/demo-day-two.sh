#!/usr/bin/env bash
# `make demo-day-two`: six real nodes on this machine. A cluster on three of them is backed up to a bucket of S3; all three
# machines are lost, and with them the state; the cluster goes on on the other three, and its application answers with its
# old data; then its certificate authorities are replaced under it. YES=1 skips all questions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=demo-day-two
part=day-two
. tests/demo-common.sh

end() {
  local code=$?
  trap - EXIT INT TERM
  # Who asks the application ends with this file, and the server of S3 with its input.
  rm -f "$dir/asks"
  if [[ -n ${bucket:-} ]]; then exec {bucket}>&-; fi
  if ((code != 0)); then
    printf '\nthe demo failed with exit code %d at this step: %s\n' "$code" "$doing" >&2
    tell_nodes >&2
  fi
  exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A config for these nodes: recurring snapshots, of which each has a copy in the bucket.
write_config() {
  {
    printf '  etcd:\n    backup_config:\n      interval_hours: 1\n      retention: 24\n      s3backupconfig:\n'
    sed 's/^/        /' "$dir/bucket.yml"
  } >"$dir/services.yml"
  lab config --name "$name" "$@" | sed "/^services:/r $dir/services.yml" >"$dir/cluster.yml"
}

# Pods of machines that are gone count as ready until the cluster has deleted them.
serves_soon() {
  local begun=$SECONDS answers
  until answers=$(serves "$@"); do
    if ((SECONDS - begun > 120)); then
      echo "$answers"
      return 1
    fi
    sleep 1
  done
  echo "$answers"
}

# True if the API server answers whom a copied kubeconfig names. Its node's own is replaced meanwhile: ten seconds are allowed.
api_answers() {
  for ((try = 0; try < 10; try++)); do
    if kubectl --kubeconfig "$dir/copy.kubeconfig" get namespaces >/dev/null 2>&1; then return; fi
    sleep 1
  done
  return 1
}

# Asks the application five times a second, one try more allowed to each request, and an API server as a client that knows
# the former authority alone, until the file is gone. Ends with how many requests failed.
ask() {
  local address=$1 file=$2 asked=0 failed=0
  while [[ -e $file ]]; do
    asked=$((asked + 1))
    serves 1 "$address" "$words" >/dev/null || failed=$((failed + 1))
    if ((asked % 10 == 0)); then api_answers || failed=$((failed + 1)); fi
    sleep 0.2
  done
  echo "$asked requests to the application, $((asked / 10)) to an API server with a copied kubeconfig: $failed failed"
  ((failed == 0))
}

step 'building the lab'
cargo build --locked --package lab
agree six 'The first time it builds a release of Kubernetes from source: twenty minutes.'

step 'building rke-operator: one static program'
rke=$(deploy/program.sh)

step 'six nodes that behave as servers: systemd, sshd, Docker'
root rm -rf "$dir"
mkdir -p "$dir/.ssh"
run lab up --name "$name" --nodes 6
kubectl=$(lab kubectl)
root cp "$(of_lab 'known hosts')" "$dir/.ssh/known_hosts"

step 'a server of S3 for them'
exec {bucket}> >(lab s3 --name "$name" backups "$dir/s3" >"$dir/bucket.yml")
until [[ -s $dir/bucket.yml ]]; do
  kill -0 $! 2>/dev/null || exit 1
  sleep 0.2
done
built=$SECONDS

step 'a cluster on three nodes, which is backed up each hour'
write_config n1 n2 n3
run cat "$dir/cluster.yml"
run rke up --config "$dir/cluster.yml" --yes

step 'an application with data of its own'
words="written at $(date -u +%T)"
sed "s/hello from \$hostname/$words/" tests/demo-service.yaml >"$dir/web.yaml"
run cluster apply -f "$dir/web.yaml"
run cluster rollout status deployment/web --timeout=180s
serves 20 "$(address_of n1)" "$words"

step 'a snapshot that has it, restored for trial, in the bucket'
run rke etcd snapshot-save --config "$dir/cluster.yml" --name with-data --s3
run rke etcd snapshot-list --config "$dir/cluster.yml"
run rke status --config "$dir/cluster.yml"

step 'the three machines are gone, and the one that had the state'
for node in n1 n2 n3; do run lab fault --name "$name" "$node" off; done
run root rm "$dir/cluster.rke-operator.json"

step 'the cluster goes on on three others, with its name, its keys and its data'
begun=$SECONDS
write_config n4 n5 n6
run rke etcd snapshot-restore --config "$dir/cluster.yml" --name with-data --s3 --lose n1,n2,n3 --yes
run cluster get nodes
serves_soon 20 "$(address_of n4)" "$words"
run cluster get pods -o wide
printf 'restored to other machines within %d s\n' $((SECONDS - begun))

step 'its certificate authorities are replaced, and nothing notices'
root cp "$dir/kube_config_cluster.yml" "$dir/copy.kubeconfig"
touch "$dir/asks"
ask "$(address_of n4)" "$dir/asks" >"$dir/asked" &
asks=$!
run rke cert rotate --config "$dir/cluster.yml" --rotate-ca --yes
rm "$dir/asks"
code=0
wait "$asks" || code=1
cat "$dir/asked"
((code == 0))
run rke cert rotate --config "$dir/cluster.yml" --rotate-ca --complete --yes
serves 20 "$(address_of n4)" "$words"
run rke status --config "$dir/cluster.yml"

cat <<TEXT

== done in $((SECONDS / 60)) min $((SECONDS % 60)) s, $built s of them for programs and nodes; the cluster stands
  look at it    kubectl --kubeconfig $dir/kube_config_cluster.yml get pods -A
                (a kubectl: $kubectl)
  take it away  make lab-down NAME=$name
TEXT
