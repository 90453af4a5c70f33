# Runs on the node, as root: what a user types (`users`), or the quickest way that is known (`best`):
# elliptic curves, no preflight, one replica of CoreDNS, and its and flannel's objects as soon as the
# API takes them instead of after `kubeadm init`. What else `kubeadm init` is given comes after that.
set -eu
cd /root/kubeadm
variant=$1
shift
case $variant in
users)
  kubeadm init --config users.yml --ignore-preflight-errors=all "$@" >init.log 2>&1 || { cat init.log >&2 && exit 1; }
  kubectl --kubeconfig /etc/kubernetes/admin.conf apply --filename users.json >/dev/null
  ;;
best)
  kubeadm init --config best.yml --ignore-preflight-errors=all --skip-phases=preflight,addon/coredns "$@" \
    >init.log 2>&1 &
  init=$!
  api=https://127.0.0.1:6443/readyz
  until [ "$(curl --silent --insecure --max-time 1 $api)" = ok ]; do
    kill -0 $init || { cat init.log >&2 && exit 1; }
    sleep 0.05
  done
  config=/etc/kubernetes/super-admin.conf
  until kubectl --kubeconfig $config apply --server-side --filename best.json >/dev/null; do sleep 0.1; done
  wait $init || { cat init.log >&2 && exit 1; }
  ;;
esac
