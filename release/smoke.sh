#!/usr/bin/env bash
# Runs an image as Kubernetes would, hardened and with no vLLM to be seen: it says its version, is alive, and ends.
#   smoke.sh IMAGE
set -euo pipefail
image=$1
cd "$(dirname "$0")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' exporter/vllm_specdec_exporter/__init__.py)

[ "$(docker run --rm "$image" --version)" = "vllm-specdec-exporter ${version:?not found}" ]
label='{{index .Config.Labels "org.opencontainers.image.version"}}'
[ "$(docker image inspect --format "$label" "$image")" = "$version" ]

container=$(docker run --detach --read-only --cap-drop ALL --security-opt no-new-privileges \
  --publish 127.0.0.1::9850 "$image" --vllm.url=http://127.0.0.1:8000)
trap 'docker logs "$container"; docker rm --force "$container" >/dev/null' EXIT
address=$(docker port "$container" 9850/tcp)
curl --fail --silent --show-error --retry 30 --retry-delay 1 --retry-all-errors "http://$address/-/healthy"
docker exec "$container" vllm-specdec-exporter health
# pipefail, and no --quiet: grep reads to the end, so that curl need not complain.
curl --fail --silent --show-error "http://$address/metrics" | grep "vllm_specdec_build_info.*\"$version\""
docker stop --time 10 "$container" >/dev/null
[ "$(docker inspect --format '{{.State.ExitCode}}' "$container")" = 0 ]
