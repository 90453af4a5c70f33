{{/*
The objects of deploy/, of which files/ has copies, with the release's namespaces, labels and values. What is an
object's own is there; what only a release has is here.
*/}}

{{- define "rke-operator.credentialsNamespace" -}}
{{- .Values.credentialsNamespace | default (printf "%s-credentials" .Release.Namespace) -}}
{{- end -}}

{{- define "rke-operator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A namespace of deploy/ as the release calls it; another is left as it is. */ -}}
{{- define "rke-operator.namespace" -}}
{{- if eq .name "rke-operator" -}}
{{ .root.Release.Namespace }}
{{- else if eq .name "rke-operator-credentials" -}}
{{ include "rke-operator.credentialsNamespace" .root }}
{{- else -}}
{{ .name }}
{{- end -}}
{{- end -}}

{{- /* Writes the labels of a release into an object, and what `helm uninstall` must not delete. */ -}}
{{- define "rke-operator.labelled" -}}
{{- $root := .root -}}
{{- $meta := .object.metadata -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name (replace "+" "_" $root.Chart.Version))
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $meta "labels" (merge $labels ($meta.labels | default dict)) -}}
{{- if or (eq .object.kind "Namespace") (hasPrefix "ValidatingAdmissionPolicy" .object.kind) -}}
{{- $_ := set $meta "annotations" (merge (dict "helm.sh/resource-policy" "keep") ($meta.annotations | default dict)) -}}
{{- end -}}
{{- end -}}

{{- /* Writes the names of the release's namespaces into an object. */ -}}
{{- define "rke-operator.placed" -}}
{{- $root := .root -}}
{{- $object := .object -}}
{{- with $object.metadata.namespace -}}
{{- $_ := set $object.metadata "namespace" (include "rke-operator.namespace" (dict "root" $root "name" .)) -}}
{{- end -}}
{{- if eq $object.kind "Namespace" -}}
{{- $_ := set $object.metadata "name" (include "rke-operator.namespace" (dict "root" $root "name" $object.metadata.name)) -}}
{{- end -}}
{{- range $object.subjects -}}
{{- if .namespace -}}
{{- $_ := set . "namespace" (include "rke-operator.namespace" (dict "root" $root "name" .namespace)) -}}
{{- end -}}
{{- end -}}
{{- if eq $object.kind "ValidatingAdmissionPolicy" -}}
{{- range $object.spec.matchConstraints.resourceRules -}}
{{- if has "namespaces" .resources -}}
{{- $names := list -}}
{{- range .resourceNames -}}
{{- $names = append $names (include "rke-operator.namespace" (dict "root" $root "name" .)) -}}
{{- end -}}
{{- $_ := set . "resourceNames" $names -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Writes the values into the Deployment. */ -}}
{{- define "rke-operator.deployed" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $_ := set .object.spec "replicas" $values.replicas -}}
{{- $template := .object.spec.template -}}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels $values.podLabels) -}}
{{- with $values.podAnnotations -}}
{{- $_ := set $template.metadata "annotations" . -}}
{{- end -}}
{{- $pod := $template.spec -}}
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- $_ := unset $pod $key -}}
{{- with get $values $key -}}
{{- $_ := set $pod $key . -}}
{{- end -}}
{{- end -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $container "image" (include "rke-operator.image" $root) -}}
{{- with $values.image.pullPolicy -}}
{{- $_ := set $container "imagePullPolicy" . -}}
{{- end -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- $args := list -}}
{{- range $container.args -}}
{{- if hasPrefix "--credentials-namespace=" . -}}
{{- $args = append $args (printf "--credentials-namespace=%s" (include "rke-operator.credentialsNamespace" $root)) -}}
{{- else if hasPrefix "--log-format=" . -}}
{{- $args = append $args (printf "--log-format=%s" $values.logFormat) -}}
{{- else -}}
{{- $args = append $args . -}}
{{- end -}}
{{- end -}}
{{- with $values.allowedNodeCidrs -}}
{{- $args = append $args (printf "--allowed-node-cidrs=%s" (join "," .)) -}}
{{- end -}}
{{- $_ := set $container "args" (concat $args $values.extraArgs) -}}
{{- $_ := set $container "env" (concat $container.env $values.extraEnv) -}}
{{- end -}}

{{- /* Whether the values want an object: "true" or nothing. */ -}}
{{- define "rke-operator.wanted" -}}
{{- $values := .root.Values -}}
{{- $kind := .object.kind -}}
{{- if hasPrefix "ValidatingAdmissionPolicy" $kind -}}
{{- if $values.policies.enabled -}}true{{- end -}}
{{- else if eq $kind "NetworkPolicy" -}}
{{- if $values.networkPolicy.enabled -}}true{{- end -}}
{{- else if eq $kind "PodDisruptionBudget" -}}
{{- if ge (int $values.replicas) 2 -}}true{{- end -}}
{{- else if and (eq $kind "Namespace") (eq .object.metadata.name .root.Release.Namespace) -}}
{{- if $values.createNamespace -}}true{{- end -}}
{{- else -}}true{{- end -}}
{{- end -}}
