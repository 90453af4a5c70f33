# $1 namespace, $2 release of Kubernetes, then the names of charts.
# The program has had more than one name.
for helm in helm helm_v4 helm_v3; do
  command -v "$helm" >/dev/null 2>&1 && break
  helm=
done
if [ -z "$helm" ]; then
  echo 'the image has no helm' >&2
  exit 1
fi
namespace=$1
version=$2
shift 2
for chart; do
  "$helm" template "$chart" "in/$chart.tgz" --namespace "$namespace" --kube-version "$version" \
    --include-crds --skip-tests --values in/values.json >"out/$chart" || exit 1
done
