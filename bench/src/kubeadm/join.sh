# Runs on each node but the first, as root and together with `kubeadm init`: the quickest way that is known.
# Without preflight, as soon as the first node lets others in instead of kubeadm's own question every five
# seconds.
set -eu
cd /root/kubeadm
server=$(sed -n 's/ *apiServerEndpoint: *//p' join.yml)
token=$(sed -n 's/ *token: *\(.*\)\..*/\1/p' join.yml)
info=https://$server/api/v1/namespaces/kube-public/configmaps/cluster-info
until curl --silent --insecure --max-time 1 "$info" | grep -q "jws-kubeconfig-$token"; do sleep 0.05; done
kubeadm join --config join.yml --ignore-preflight-errors=all --skip-phases=preflight >join.log 2>&1 ||
  { cat join.log >&2 && exit 1; }
