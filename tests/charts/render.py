#!/usr/bin/env python3
"""Renders the real charts of a release with the values that rkespec's documents give, and looks for the effect
of every option in what comes out.

    tests/charts/render.py CHARTS [HELM [KUBECONFIG]]

CHARTS is a folder with the charts unpacked, `rke2-canal*`, `rke2-calico*`, `rke2-ingress-nginx*`,
`rke2-traefik*`, as they lie in github.com/rancher/rke2-charts (branch main, assets/). None is part of this
repository. Needs helm, and python3 with PyYAML.

With KUBECONFIG, of a cluster that is made for this (`make lab-up`, `rke-operator up`), every object is sent to its
API server, which checks it and keeps nothing (kubectl's `--dry-run=server`); only namespaces and the charts'
custom resource definitions are made, so that it knows the kinds."""

import glob
import json
import os
import subprocess
import sys
import tempfile

SNAPSHOTS = os.path.join(os.path.dirname(__file__), "../it/snapshots/it__config_golden__charts@{}.yml.snap")

# Document, chart, option of cluster.yml, and where in which object what stands.
ROWS = [
    ("rke-defaults", "canal", "cluster_cidr", "ConfigMap", "data.net-conf.json", '"Network": "10.42.0.0/16"'),
    ("canal", "canal", "cluster_cidr", "ConfigMap", "data.net-conf.json", '"Network": "10.50.0.0/16"'),
    ("canal", "canal", "network.mtu", "ConfigMap", "data.veth_mtu", "1400"),
    ("canal", "canal", "canal_iface", "ConfigMap", "data.canal_iface", "eth1"),
    ("canal", "canal", "canal_flannel_backend_type", "ConfigMap", "data.net-conf.json", '"Type": "vxlan"'),
    ("canal", "canal", "canal_flannel_backend_port", "ConfigMap", "data.net-conf.json", '"Port": 8473'),
    ("canal", "canal", "canal_flannel_backend_vni", "ConfigMap", "data.net-conf.json", '"VNI": 7'),
    ("canal", "canal", "canal_flex_volume_plugin_dir", "DaemonSet", "spec.template.spec.volumes", "/opt/volumeplugins/nodeagent~uds"),
    ("canal", "canal", "calico's controllers", "Deployment", "metadata.name", "rke2-canal-kube-controllers"),
    ("canal", "canal", "network.values", "DaemonSet", "spec.template.spec.containers", '"FELIX_LOGSEVERITYSCREEN", "value": "warning"'),
    ("calico", "calico", "cluster_cidr", "Installation", "spec.calicoNetwork.ipPools", '"cidr": "10.42.0.0/16", "encapsulation": "IPIP"'),
    ("calico", "calico", "BGP", "Installation", "spec.calicoNetwork.bgp", "Enabled"),
    ("calico", "calico", "network.mtu", "Installation", "spec.calicoNetwork.mtu", "1440"),
    ("calico", "calico", "calico_flex_volume_plugin_dir", "Installation", "spec.flexVolumePath", "/opt/volumeplugins/"),
    ("calico", "calico", "network.node_selector", "Installation", "spec.calicoNodeDaemonSet.spec.template.spec.nodeSelector", '"net": "calico"'),
    ("calico", "calico", "network.update_strategy", "Installation", "spec.nodeUpdateStrategy", '"maxUnavailable": "10%"'),
    ("calico", "calico", "network.tolerations", "Installation", "spec.controlPlaneTolerations", '"key": "dedicated"'),
    ("calico", "calico", "network.values", "FelixConfiguration", "spec.logSeveritySys", "Warning"),
    ("ingress-nginx", "nginx", "ingress.options", "ConfigMap", "data", '"proxy-body-size": "64m"'),
    ("ingress-nginx", "nginx", "ingress.node_selector", "DaemonSet", "spec.template.spec.nodeSelector", '"edge": "true"'),
    ("ingress-nginx", "nginx", "ingress.extra_args (bare)", "DaemonSet", "spec.template.spec.containers", '"--enable-ssl-passthrough"'),
    ("ingress-nginx", "nginx", "ingress.extra_args", "DaemonSet", "spec.template.spec.containers", '"--default-ssl-certificate=ingress-nginx/wildcard"'),
    ("ingress-nginx", "nginx", "ingress.extra_args.http-port", "DaemonSet", "spec.template.spec.containers", '"containerPort": 8080, "hostPort": 8081, "name": "http"'),
    ("ingress-nginx", "nginx", "ingress.dns_policy", "DaemonSet", "spec.template.spec.dnsPolicy", "ClusterFirstWithHostNet"),
    ("ingress-nginx", "nginx", "ingress.extra_envs", "DaemonSet", "spec.template.spec.containers", '"name": "TZ", "value": "Europe/Berlin"'),
    ("ingress-nginx", "nginx", "ingress.extra_volumes", "DaemonSet", "spec.template.spec.volumes", '"secretName": "more-certs"'),
    ("ingress-nginx", "nginx", "ingress.extra_volume_mounts", "DaemonSet", "spec.template.spec.containers", '"mountPath": "/etc/more-certs"'),
    ("ingress-nginx", "nginx", "ingress.update_strategy", "DaemonSet", "spec.updateStrategy", '"maxUnavailable": 5'),
    ("ingress-nginx", "nginx", "ingress.https_port", "DaemonSet", "spec.template.spec.containers", '"hostPort": 8443, "name": "https"'),
    ("ingress-nginx", "nginx", "ingress.default_backend", "Deployment", "metadata.name", "ingress-nginx-defaultbackend"),
    ("ingress-nginx", "nginx", "ingress.tolerations", "Deployment", "spec.template.spec.tolerations", '"key": "edge"'),
    ("ingress-nginx", "nginx", "ingress.default_http_backend_priority_class_name", "Deployment", "spec.template.spec.priorityClassName", "backend-priority"),
    ("ingress-nginx", "nginx", "ingress.nginx_ingress_controller_priority_class_name", "DaemonSet", "spec.template.spec.priorityClassName", "controller-priority"),
    ("ingress-nginx", "nginx", "only on workers", "DaemonSet", "spec.template.spec.affinity", "node-role.kubernetes.io/worker"),
    ("ingress-nginx", "nginx", "RKE's name of the ConfigMap", "ConfigMap", "metadata.name", "ingress-nginx-controller"),
    ("ingress-nginx", "nginx", "RKE's name of the webhook", "ValidatingWebhookConfiguration", "metadata.name", "ingress-nginx-admission"),
    ("ingress-nginx", "nginx", "ingress.values", "DaemonSet", "spec.template.spec.terminationGracePeriodSeconds", "60"),
    ("rke-defaults", "nginx", "ingress.default_ingress_class", "IngressClass", "metadata.annotations", '"ingressclass.kubernetes.io/is-default-class": "true"'),
    ("rke-defaults", "nginx", "Ingresses without a class", "DaemonSet", "spec.template.spec.containers", '"--watch-ingress-without-class=true"'),
    ("rke-defaults", "nginx", "ingress.network_mode: hostPort", "DaemonSet", "spec.template.spec.containers", '"hostPort": 80'),
    ("ingress-host-network", "nginx", "ingress.network_mode: hostNetwork", "DaemonSet", "spec.template.spec.hostNetwork", "true"),
    ("ingress-traefik", "traefik", "ingress.node_selector", "DaemonSet", "spec.template.spec.nodeSelector", '"edge": "true"'),
    ("ingress-traefik", "traefik", "ingress.extra_args", "DaemonSet", "spec.template.spec.containers", '"--log.level=DEBUG"'),
    ("ingress-traefik", "traefik", "ingress.extra_args (bare)", "DaemonSet", "spec.template.spec.containers", '"--accesslog"'),
    ("ingress-traefik", "traefik", "ingress.extra_envs", "DaemonSet", "spec.template.spec.containers", '"name": "TZ", "value": "Europe/Berlin"'),
    ("ingress-traefik", "traefik", "ingress.extra_volumes", "DaemonSet", "spec.template.spec.volumes", '"name": "more"'),
    ("ingress-traefik", "traefik", "ingress.extra_volume_mounts", "DaemonSet", "spec.template.spec.containers", '"mountPath": "/more"'),
    ("ingress-traefik", "traefik", "ingress.dns_policy", "DaemonSet", "spec.template.spec.dnsPolicy", "Default"),
    ("ingress-traefik", "traefik", "ingress.update_strategy", "DaemonSet", "spec.updateStrategy", '"maxUnavailable": 2'),
    ("ingress-traefik", "traefik", "ingress.http_port", "DaemonSet", "spec.template.spec.containers", '"hostPort": 8081'),
    ("ingress-traefik", "traefik", "ingress.https_port", "DaemonSet", "spec.template.spec.containers", '"hostPort": 8444'),
    ("ingress-traefik", "traefik", "ingress.nginx_ingress_controller_priority_class_name", "DaemonSet", "spec.template.spec.priorityClassName", "controller-priority"),
    ("ingress-traefik", "traefik", "ingress.default_ingress_class", "IngressClass", "metadata.annotations", '"ingressclass.kubernetes.io/is-default-class": "true"'),
    ("ingress-traefik", "traefik", "only on workers", "DaemonSet", "spec.template.spec.affinity", "node-role.kubernetes.io/worker"),
    ("ingress-traefik", "traefik", "ingress.values", "DaemonSet", "spec.template.spec.containers", '"--accesslog=true"'),
]


def charts_of(document):
    """What the document's golden says: after the second `---`."""
    with open(SNAPSHOTS.format(document), encoding="utf-8") as snapshot:
        return json.loads(snapshot.read().split("\n---\n", 1)[1])


def template(path, chart, helm):
    import yaml

    with tempfile.NamedTemporaryFile("w", suffix=".json") as values:
        json.dump(chart["values"], values)
        values.flush()
        command = [helm, "template", chart["chart"], path, "--namespace", chart["namespace"], "--include-crds"]
        command += ["--kube-version", "1.34.4", "--api-versions", "operator.tigera.io/v1", "--values", values.name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [as_it_is_served(document) for document in yaml.safe_load_all(output) if document]


def as_it_is_served(value):
    """As the function of this name in src/workload/charts/rendered.rs."""
    if isinstance(value, list):
        return [as_it_is_served(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: as_it_is_served(field) for key, field in value.items() if field is not None}
    if value.get("kind") == "PodDisruptionBudget" and value.get("apiVersion") == "policy/v1beta1":
        value["apiVersion"] = "policy/v1"
    return value


def render(chart, folder, helm):
    """The chart's objects, and those of the chart of its definitions; None without the chart."""
    # `rke2-calico-v3.31.300`, and not `rke2-calico-crd-…`.
    found = sorted(glob.glob(f"{folder}/{chart['chart']}-*"))
    definitions = [path for path in found if "-crd-" in path]
    found = [path for path in found if "-crd-" not in path]
    if not found:
        return None, []
    kinds = template(definitions[-1], {**chart, "values": {}}, helm) if definitions else []
    return template(found[-1], chart, helm), kinds


def kubectl(kubeconfig, objects, *args):
    """What kubectl says about the objects."""
    command = ["kubectl", "--kubeconfig", kubeconfig, "apply", "--server-side", "--force-conflicts", *args, "--filename", "-"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return subprocess.run(command, input=text, capture_output=True, text=True)


def accepted(chart, objects, kinds, kubeconfig):
    """True if the API server would take every object."""
    is_kind = lambda item: item["kind"] == "CustomResourceDefinition"
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart["namespace"]}}]
    made += [item for item in kinds + objects if is_kind(item)]
    result = kubectl(kubeconfig, made)
    if result.returncode != 0:
        print(f"REFUSED  {chart['name']:8} its definitions\n         {result.stderr.strip()}")
        return False
    names = [f"crd/{item['metadata']['name']}" for item in made[1:]]
    if names:
        wait = ["kubectl", "--kubeconfig", kubeconfig, "wait", "--for=condition=Established", "--timeout=60s"]
        subprocess.run([*wait, *names], check=True, capture_output=True)
    rest = [item for item in kinds + objects if not is_kind(item)]
    taken, errors = 0, ""
    for elsewhere in [False, True]:
        part = [item for item in rest if ("namespace" in item["metadata"]) == elsewhere]
        # As helm, which has one for what names none.
        namespace = [] if elsewhere else ["--namespace", chart["namespace"]]
        result = kubectl(kubeconfig, part, "--dry-run=server", *namespace)
        taken += len(result.stdout.splitlines())
        errors += result.stderr
    good = taken == len(rest)
    print(f"{'accepted' if good else 'REFUSED '} {chart['name']:8} {taken} of {len(rest)} objects, {len(names)} definitions")
    if errors:
        print(f"         {errors.strip()}")
    return good


def at(value, path):
    """Names of keys in `data` have dots of their own."""
    while path and isinstance(value, dict):
        if path in value:
            return value[path]
        first, _, path = path.partition(".")
        value = value.get(first)
    return value


def main():
    if len(sys.argv) < 2 or not os.path.isdir(sys.argv[1]):
        print("skipped: no folder of charts was given; see the head of this file")
        return 0
    folder, helm = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "helm"
    kubeconfig = sys.argv[3] if len(sys.argv) > 3 else None
    rendered = {}
    failed = 0
    for document, name, option, kind, path, want in ROWS:
        if (document, name) not in rendered:
            chart = next(chart for chart in charts_of(document) if chart["name"] == name)
            objects, kinds = render(chart, folder, helm)
            rendered[document, name] = objects
            if kubeconfig and objects is not None and not accepted(chart, objects, kinds, kubeconfig):
                failed += 1
        objects = rendered[document, name]
        if objects is None:
            print(f"skipped  {name:8} {option}: its chart is not in {folder}")
            continue
        values = [at(item, path) for item in objects if item["kind"] == kind]
        texts = [
            value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            for value in values
            if value is not None
        ]
        good = any(want in text for text in texts)
        failed += not good
        print(f"{'rendered' if good else 'MISSING '} {name:8} {option}")
        if not good:
            print(f"         {kind} {path}: {want!r} is not in {texts}"[:400])
    print(f"{len(ROWS)} options, {failed} without an effect or refused")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
