{{/* What the schema cannot refuse, because it takes two values to be wrong. */}}
{{- define "ai-scheduler.refusals" -}}
{{- if and (gt (int .Values.replicaCount) 1) (not (include "ai-scheduler.elects" .)) }}
{{- fail (printf "replicaCount is %d and config.leaderElection.enabled is false: that many schedulers would all write. Set replicaCount to 1, or leave the election on." (int .Values.replicaCount)) }}
{{- end }}
{{- $homes := dict "--no-leader-elect" "config.leaderElection.enabled" "--http-address" "config.http.address" "--config" "config" }}
{{- range $argument := .Values.extraArgs }}
{{- $option := splitList "=" $argument | first }}
{{- with get $homes $option }}
{{- fail (printf "extraArgs holds %s, which the chart has to know: set %s." $option .) }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "metrics.serviceMonitor.enabled is true and metrics.enabled is false: there is no Service to scrape." }}
{{- end }}
{{- end }}
