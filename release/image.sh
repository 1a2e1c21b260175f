#!/usr/bin/env bash
# Builds the image of this commit, with its version, revision and time in labels.
#   image.sh [ARGUMENTS of docker buildx build]
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' exporter/vllm_specdec_exporter/__init__.py)
revision=$(git rev-parse HEAD)
created=$(git log -1 --format=%cI)
seconds=$(git log -1 --format=%ct)
exec docker buildx build \
  --build-arg "VERSION=${version:?not found}" \
  --build-arg "REVISION=$revision" \
  --build-arg "CREATED=$created" \
  --build-arg "SOURCE_DATE_EPOCH=$seconds" \
  "$@" .
