{{- define "gradientmail.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* The name of the release's objects; short enough to leave room for "-test" and the like within 63 characters. */}}
{{- define "gradientmail.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "gradientmail.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "gradientmail.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The name of objects that have no namespace: releases of one name in two namespaces must not meet. */}}
{{- define "gradientmail.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "gradientmail.fullname" .) }}
{{- end }}

{{- define "gradientmail.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gradientmail.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "gradientmail.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "gradientmail.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gradientmail.labels" -}}
{{ include "gradientmail.commonLabels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "gradientmail.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "gradientmail.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.create is false: name the existing service account in serviceAccount.name." .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "gradientmail.podAnnotations" -}}
{{- $scraped := dict }}
{{- if .Values.metrics.scrapeAnnotations }}
{{- $scraped = dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .Values.metrics.port) "prometheus.io/path" "/metrics" }}
{{- end }}
{{- with mergeOverwrite $scraped .Values.podAnnotations }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "gradientmail.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* Where `helm test` makes its run: a namespace that the controller serves. */}}
{{- define "gradientmail.testNamespace" -}}
{{- $watched := .Values.watchNamespaces }}
{{- $namespace := default (ternary (first $watched) .Release.Namespace (gt (len $watched) 0)) .Values.tests.namespace }}
{{- if and $watched (not (has $namespace $watched)) }}
{{- fail (printf "tests.namespace is %q, which the controller does not serve: give one of watchNamespaces (%s)." $namespace (join ", " $watched)) }}
{{- end }}
{{- $namespace }}
{{- end }}
