#!/usr/bin/env bash
# Lints, renders and packages the chart.
#   chart.sh FOLDER    where the package goes
set -euo pipefail
folder=$(realpath --canonicalize-missing "$1")
cd "$(dirname "$0")/.."
chart=helm/vllm-specdec-exporter
everything=podMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true
version=1.31.0

helm lint --strict "$chart"
helm template specdec "$chart" --kube-version "$version" >/dev/null
helm template specdec "$chart" --kube-version "$version" --set "$everything" >/dev/null
mkdir -p "$folder"
helm package "$chart" --destination "$folder"
