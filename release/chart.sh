#!/usr/bin/env bash
# Lints, renders and packages the chart: the same bytes for the same files, which Helm alone does not promise.
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

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
helm package "$chart" --destination "$work"
mkdir -p "$work/content" "$folder"
tar --extract --gzip --file "$work"/*.tgz --directory "$work/content"
release/pack.sh "$folder/$(basename "$work"/*.tgz)" "$work/content" vllm-specdec-exporter
