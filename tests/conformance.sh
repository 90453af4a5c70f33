#!/usr/bin/env bash
# `make conformance`: Kubernetes' own conformance tests on a cluster of the lab, three control planes with etcd and two
# workers: in PROCS processes first, then what has failed once more in one. FOCUS is a regular expression for some of the
# tests. It stops after MINUTES; the next run of the same commit continues with what has not passed. Ends with the tables
# for docs/conformance.md, and fails if a test failed that this document does not explain, or was not run. The lab is
# taken down at the end; with KEEP=1 it stands, and the next run uses it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=conformance part=conformance
. tests/demo-common.sh
dir=$(realpath --canonicalize-missing "$target/conformance")
end_of_time=$((SECONDS + 60 * ${MINUTES:-600}))
commit=$(git describe --always --dirty)
reports=$dir/reports/$commit
if [[ -n ${FOCUS:-} ]]; then reports=$dir/reports/part; fi

end() {
  local code=$?
  trap - EXIT INT TERM
  if ((code != 0)); then echo "failed with exit code $code at this step: $doing" >&2; fi
  if [[ -n ${KEEP:-} ]]; then
    echo "the lab stands; take it down with: make lab-down NAME=$name"
  elif [[ -x $lab ]]; then
    lab down --name "$name" || code=1
  fi
  exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The reports of earlier runs.
read_reports() {
  shopt -s nullglob
  found=("$reports"/*/ginkgo/report.json)
}

table() { lab e2e table --explained docs/conformance.md ${FOCUS:+--part} "${found[@]}"; }

# Runs what has not passed yet. Serial tests run after all others, in the first of the processes.
run_tests() {
  local procs=$1 minutes=$(((end_of_time - SECONDS + 59) / 60)) skip to
  read_reports
  if ((minutes < 1)); then return; fi
  skip=$(lab e2e passed "${found[@]}")
  to=$reports/$(date -u +%FT%H%M%S)
  mkdir -p "$to"
  step "tests, at most $procs at once, for at most $minutes minutes; what they say is in $to/e2e.log"
  # Its exit code says no more than its report. HOME is where kubectl keeps what it discovers.
  root env "HOME=$dir" "KUBE_TEST_REPO_LIST=$dir/registries.yml" "$programs/ginkgo" run "--procs=$procs" \
    "--timeout=${minutes}m" --no-color --silence-skips --label-filter=Conformance "--focus=${FOCUS:-}" "--skip=$skip" \
    "$programs/e2e.test" -- "--kubeconfig=$dir/kube_config_cluster.yml" "--kubectl-path=$kubectl" --provider=skeleton \
    --non-blocking-taints=node-role.kubernetes.io/controlplane,node-role.kubernetes.io/etcd --clean-start \
    "--report-dir=$to" --report-complete-ginkgo "--e2e-output-dir=$to" --disable-log-dump >"$to/e2e.log" 2>&1 || true
  if [[ ! -s $to/ginkgo/report.json ]]; then
    tail -n 20 "$to/e2e.log" >&2
    return 1
  fi
  read_reports
}

step "building rke-operator, the lab, Kubernetes' tests and their images"
cargo build --quiet --locked --workspace --bins
lab missing --install
programs=$(lab e2e programs)
kubectl=$(lab kubectl)
if [[ -n ${FOCUS:-} ]]; then root rm -rf "$reports"; fi
mkdir -p "$dir/.ssh"
# Where nodes find the images of the tests.
cat >"$dir/registries.yml" <<-TEXT
	gcRegistry: registry.lab:5000
	gcEtcdRegistry: registry.lab:5000
	promoterE2eRegistry: registry.lab:5000/e2e-test-images
	TEXT

step 'three control planes with etcd, two workers'
if ! lab ssh --name "$name" n5 true &>/dev/null; then
  # What an earlier run kept is the state of a cluster whose machines are gone.
  root rm -f "$dir"/{cluster.rke-operator.json,kube_config_cluster.yml}
  lab up --name "$name" --nodes 5 --e2e
fi
root cp "$(of_lab 'known hosts')" "$dir/.ssh/known_hosts"
lab config --name "$name" n{1,2,3}=controlplane,etcd n{4,5}=worker >"$dir/cluster.yml"
rke up --config "$dir/cluster.yml" --yes

run_tests "${PROCS:-6}"
if ! table &>/dev/null && ((end_of_time - SECONDS > 600)); then run_tests 1; fi

step 'what became of them'
printf '\n%s, commit %s\n\n' "$(date -u +%F)" "$commit"
table
