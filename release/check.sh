#!/usr/bin/env bash
# Rehearses a release: builds into dist/ all that would be published, and again from the unpacked sdist in another
# place; compares byte by byte; and prints what a maintainer has to set. Publishes nothing.
#   check.sh PYTHON     that of the virtual environment, which has the locked build backend; needs helm
set -euo pipefail
python=$(realpath --no-symlinks "$1")
cd "$(dirname "$0")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' exporter/vllm_specdec_exporter/__init__.py)

"$python" release/version.py --check
release/dist.sh "$python"

again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
mkdir "$again/tree" "$again/dist"
tar --extract --gzip --file dist/*.tar.gz --directory "$again/tree" --strip-components 1
# Of the chart, and of what docker build would send: what .dockerignore lets through.
for place in "$PWD $PWD/dist" "$again/tree $again/dist"; do
  read -r root into <<<"$place"
  "$root/release/chart.sh" "$into"
  mapfile -t sent < <(sed -n 's/^!//p' "$root/.dockerignore")
  "$root/release/pack.sh" "$into/image-context.tar.gz" "$root" Dockerfile .dockerignore "${sent[@]}"
done
for file in "$again"/dist/*; do
  cmp "$file" "dist/$(basename "$file")"
done
"$python" release/notes.py "v${version:?not found}" --rehearse >dist/notes.md

echo
(cd dist && sha256sum -- *)
echo
"$python" release/version.py --ready || true
grep --quiet "^## \[$version\]" CHANGELOG.md || echo "name the section [Unreleased] of CHANGELOG.md [$version], with its date"
echo "release/README.md says what to set in the repository's settings and at the package index"
