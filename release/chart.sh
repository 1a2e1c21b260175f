#!/usr/bin/env bash
# Lints, renders and packages the chart: the same bytes for the same files, which Helm alone does not promise.
#   chart.sh FOLDER    where the package goes
set -euo pipefail
folder=$(realpath --canonicalize-missing "$1")
cd "$(dirname "$0")/.."
chart=helm/vllm-specdec-exporter
everything=podMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true
version=1.31.0

# Helm says of each link in files/ that it follows it.
helm lint --strict "$chart"
helm template specdec "$chart" --kube-version "$version" >/dev/null
helm template specdec "$chart" --kube-version "$version" --set "$everything" >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
helm package "$chart" --destination "$work"
mkdir -p "$work/content" "$folder"
tar --extract --gzip --file "$work"/*.tgz --directory "$work/content"
# Links into the repository work on no page that shows the README of a package.
home=$(sed -n 's/^home: //p' "$chart/Chart.yaml")
tree=$home/blob/v$(sed -n 's/^version: //p' "$chart/Chart.yaml")
sed --in-place --regexp-extended "s#\]\(\.\./\.\./#](${tree:?}/#g; s#\]\(\.\./#](${tree:?}/helm/#g" \
  "$work/content/vllm-specdec-exporter/README.md"
release/pack.sh "$folder/$(basename "$work"/*.tgz)" "$work/content" vllm-specdec-exporter
