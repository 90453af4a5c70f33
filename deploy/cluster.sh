#!/usr/bin/env bash
# `make install`, `uninstall`, `deploy`, `undeploy`: what they do to the cluster that kubectl talks to.
# KUBECTL names another kubectl, KUBECONFIG another cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

read -ra kubectl <<<"${KUBECTL:-kubectl}"
kind=clusters.clusterprovisioner.rke.io
own=rke-operator
credentials=rke-operator-credentials

# The Clusters, one per line; fails if the API does not answer.
clusters() {
  local definition
  definition=$("${kubectl[@]}" get crd "$kind" --ignore-not-found -o name) || return 1
  if [[ -n $definition ]]; then "${kubectl[@]}" get "$kind" -o name || return 1; fi
}

# The Kubeconfigs that an operator must release, one per line: while there is one, the CRD is not deleted.
bound() {
  local definition kind=kubeconfigs.clusterprovisioner.rke.io
  definition=$("${kubectl[@]}" get crd "$kind" --ignore-not-found -o name) || return 1
  if [[ -n $definition ]]; then
    "${kubectl[@]}" get "$kind" -o 'jsonpath={range .items[?(@.metadata.finalizers)]}{.metadata.name}{"\n"}{end}' || return 1
  fi
}

# An image's name as kustomize wants it.
of_image() {
  case $1 in
    *@*) printf '    newName: "%s"\n    digest: "%s"\n' "${1%@*}" "${1##*@}" ;;
    *) of_tag "$1" "${1##*/}" ;;
  esac
}

# A colon after the last slash begins a tag; one before it is a registry's port.
of_tag() {
  if [[ $2 == *:* ]]; then
    printf '    newName: "%s"\n    newTag: "%s"\n' "${1%:*}" "${1##*:}"
  else
    printf '    newName: "%s"\n    newTag: latest\n' "$1"
  fi
}

install() {
  "${kubectl[@]}" apply --server-side -k crds
  "${kubectl[@]}" wait --for=condition=Established --timeout=60s -f crds/clusters.yaml -f crds/kubeconfigs.yaml -f crds/clusteroperations.yaml
  # They refuse deletions by mistake, and refer to kinds that must exist.
  "${kubectl[@]}" apply --server-side -k deploy/policies
}

case ${1:-} in
  install) install ;;
  uninstall)
    there=$(clusters)
    if [[ -n $there ]]; then
      printf 'refusing to delete the CRDs: these Clusters would be deleted with them:\n%s\n' "$there" >&2
      echo 'delete them first; nothing was done' >&2
      exit 1
    fi
    there=$(bound)
    if [[ -n $there ]]; then
      printf 'refusing to delete the CRDs: a running operator must unbind the users of these Kubeconfigs first:\n%s\n' "$there" >&2
      echo 'delete them first, while it runs; nothing was done' >&2
      exit 1
    fi
    "${kubectl[@]}" delete --ignore-not-found -k deploy/policies
    "${kubectl[@]}" delete --ignore-not-found -k crds
    ;;
  deploy)
    img=${2:?'usage: make deploy IMG=registry.example.com/rke-operator:dev'}
    # In a separate overlay: kustomize edits files, and these are checked in.
    mkdir -p "${CARGO_TARGET_DIR:-target}"
    overlay=$(mktemp -d "${CARGO_TARGET_DIR:-target}/deploy.XXXXXX")
    trap 'rm -rf "$overlay"' EXIT
    {
      printf 'resources: ["%s"]\nimages:\n  - name: rke-operator\n' "$(realpath --relative-to="$overlay" deploy)"
      of_image "$img"
    } >"$overlay/kustomization.yaml"
    # First: an operator refuses to start with older CRDs than its own.
    install
    "${kubectl[@]}" apply --server-side -k "$overlay"
    "${kubectl[@]}" --namespace "$own" rollout status deployment/rke-operator --timeout=180s
    ;;
  undeploy)
    # The permissions are deleted after the last pod, which still releases its lease.
    "${kubectl[@]}" delete --ignore-not-found --cascade=foreground --timeout=180s -f deploy/deployment.yaml
    "${kubectl[@]}" delete --ignore-not-found -f deploy/networkpolicy.yaml -f deploy/rbac.yaml
    echo 'kept:'
    echo '  the CRDs, and the admission policies (make uninstall deletes both)'
    there=$(clusters)
    printf '  %d Clusters, which are no longer reconciled\n' "$(grep -c . <<<"$there" || true)"
    echo "  the namespace $credentials: SSH keys and kubeconfigs"
    echo "  the namespace $own: states, with the keys of every cluster, and records of orphaned clusters"
    ;;
  *)
    echo 'usage: deploy/cluster.sh install|uninstall|deploy IMAGE|undeploy' >&2
    exit 2
    ;;
esac
