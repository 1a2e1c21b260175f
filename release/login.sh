#!/usr/bin/env bash
# Logs in to the registry that IMAGE_REGISTRY names: as REGISTRY_USER with REGISTRY_PASSWORD where these are set,
# else with the token of the workflow, which is for GitHub's own registry.
#   login.sh docker|helm
set -euo pipefail
if [ -z "${IMAGE_REGISTRY:-}" ]; then
  echo "::error::IMAGE_REGISTRY is not set; release/publish.toml says what belongs there" >&2
  exit 1
fi
if [ -n "${REGISTRY_USER:-}" ]; then
  user=$REGISTRY_USER
  password=${REGISTRY_PASSWORD:?REGISTRY_USER is set, so the secret is needed too}
else
  user=${GITHUB_ACTOR:?}
  password=${WORKFLOW_TOKEN:?}
fi
case $1 in
  docker) login=(docker login) ;;
  helm) login=(helm registry login) ;;
  *) echo "docker or helm, not $1" >&2 && exit 2 ;;
esac
# No pipe: with pipefail, a program that ends before it reads the password fails the script at random. Both programs cut the newline.
"${login[@]}" "${IMAGE_REGISTRY%%/*}" --username "$user" --password-stdin <<<"$password"
