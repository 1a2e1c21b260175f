#!/usr/bin/env bash
# Builds what is released into dist/: sdist, wheel, bill of materials, checksums. Fails unless a second build, from
# the unpacked sdist in another place, gives the same bytes.
#   dist.sh PYTHON     that of the virtual environment, which has the locked build backend
set -euo pipefail
python=$(realpath --no-symlinks "$1")
cd "$(dirname "$0")/.."

# The backend's own constant is the time of every file: whoever unpacks the sdist knows it too.
unset SOURCE_DATE_EPOCH
rm -rf dist
"$python" -m hatchling build

again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
tar --extract --gzip --file dist/*.tar.gz --directory "$again" --strip-components 1
(umask 077 && cd "$again" && "$python" -m hatchling build)
for file in dist/*; do
  cmp "$file" "$again/$file"
done

bill=$(basename dist/*.tar.gz .tar.gz).cdx.json
"$python" release/sbom.py "dist/$bill"
(cd dist && sha256sum -- * >"$again/SHA256SUMS" && mv "$again/SHA256SUMS" . && cat SHA256SUMS)
