#!/usr/bin/env bash
# Pushes a packaged chart to the registry that IMAGE_REGISTRY names; writes subject and digest to GITHUB_OUTPUT.
#   push.sh PACKAGE
set -euo pipefail
folder=oci://$IMAGE_REGISTRY/charts
pushed=$(helm push "$1" "$folder" 2>&1)
echo "$pushed"
digest=$(sed -n 's/^Digest: //p' <<<"$pushed")
{
  echo "subject=${folder#oci://}/vllm-specdec-exporter"
  echo "digest=${digest:?helm printed no digest}"
} >>"$GITHUB_OUTPUT"
