{{/* Checks that compare two values, which the schema cannot do. */}}
{{- define "ai-scheduler.refusals" -}}
{{- if and (gt (int .Values.replicaCount) 1) (not (include "ai-scheduler.elects" .)) }}
{{- fail (printf "replicaCount is %d and config.leaderElection.enabled is false: without leader election all replicas would bind pods. Set replicaCount to 1 or enable leader election." (int .Values.replicaCount)) }}
{{- end }}
{{- $homes := dict "--no-leader-elect" "config.leaderElection.enabled" "--http-address" "config.http.address" "--config" "config" }}
{{- range $argument := .Values.extraArgs }}
{{- $option := splitList "=" $argument | first }}
{{- with get $homes $option }}
{{- fail (printf "extraArgs contains %s, but other objects of the chart depend on its value: set %s." $option .) }}
{{- end }}
{{- end }}
{{- range $argument := .Values.extraArgs }}
{{- if and $.Values.journal.enabled (hasPrefix "--journal" $argument) }}
{{- fail "extraArgs contains --journal and journal.enabled is true: the scheduler writes one journal." }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "metrics.serviceMonitor.enabled is true and metrics.enabled is false: there is no Service to scrape." }}
{{- end }}
{{- end }}
