{{/* Names, labels and fragments for more than one template. */}}

{{- define "ai-scheduler.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* 40 characters leave room for the suffixes of objects. */}}
{{- define "ai-scheduler.fullname" -}}
{{- $name := include "ai-scheduler.name" . }}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $whole .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "ai-scheduler.serviceAccountName" -}}
{{- default (ternary (include "ai-scheduler.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "ai-scheduler.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "ai-scheduler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ai-scheduler
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The selector of the scheduler's pods; the selector of a Deployment is immutable. */}}
{{- define "ai-scheduler.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ai-scheduler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "ai-scheduler.operatorName" -}}
{{ include "ai-scheduler.fullname" . }}-operator
{{- end }}

{{/* The selector of the operator's pod. */}}
{{- define "ai-scheduler.operatorSelectorLabels" -}}
app.kubernetes.io/name: {{ include "ai-scheduler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* The first part of a repository is its registry if it has a dot or a colon or is localhost, as for docker. */}}
{{- define "ai-scheduler.image" -}}
{{- $image := .Values.image }}
{{- $repository := $image.repository }}
{{- with default $image.registry .Values.global.imageRegistry }}
{{- $repository = regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "" | printf "%s/%s" . }}
{{- end }}
{{- $repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "ai-scheduler.port" -}}
{{ dig "http" "address" ":8080" .Values.config | trimPrefix ":" }}
{{- end }}

{{/* "true" if leader election is on, else empty. */}}
{{- define "ai-scheduler.elects" -}}
{{- if dig "leaderElection" "enabled" true .Values.config }}true{{ end }}
{{- end }}

{{- define "ai-scheduler.config" -}}
{{- $head := dict "apiVersion" "config.resource.aibee.cn/v1alpha1" "kind" "AiSchedulerConfiguration" }}
{{- toYaml (merge $head .Values.config) }}
{{- end }}

{{/* List item: a volume with a service account token of one hour, the cluster's CA certificate and the namespace. */}}
{{- define "ai-scheduler.accessVolume" -}}
- name: access
  projected:
    defaultMode: 0444
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}

{{- define "ai-scheduler.accessMount" -}}
- name: access
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}

{{/* Egress rules of the values of networkPolicy. */}}
{{- define "ai-scheduler.egress" -}}
- ports:
    {{- range .apiServerPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- with .extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
