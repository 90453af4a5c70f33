# Runs on each node, as root: the least that any tool could do. Files and certificates lie there
# already. What needs an API server is started when it is ready: before, it would only fail, wait
# and take processor time from it. Everything else, and every object, at once.
set -eu
cd /root/floor
run() { for name; do [ ! -e "run-$name.sh" ] || sh "run-$name.sh" >/dev/null & done; }
# The members of etcd begin together; a node without an API server reaches those of others by its proxy.
run etcd kube-apiserver nginx-proxy
ssl=/etc/kubernetes/ssl
ready() {
  [ "$(curl --silent --max-time 1 --cacert $ssl/kube-ca.pem --cert $ssl/kube-node.pem \
    --key $ssl/kube-node-key.pem https://127.0.0.1:6443/readyz)" = ok ]
}
until ready; do sleep 0.05; done
run kube-controller-manager kubelet kube-scheduler kube-proxy
if [ -e manifests.json ]; then
  until ./kubectl --kubeconfig admin.kubeconfig apply --server-side --filename manifests.json >/dev/null; do sleep 0.1; done
fi
wait
