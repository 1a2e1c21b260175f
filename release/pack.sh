#!/usr/bin/env bash
# Packs files so that the bytes depend on names and content only: not on time, user, umask or order.
#   pack.sh ARCHIVE FOLDER PATH...    paths below the folder; patterns are expanded there
set -euo pipefail
archive=$(realpath "$1")
cd "$2"
shift 2
# Unquoted, for the patterns.
# shellcheck disable=SC2068
tar --create --format ustar --sort name --mtime @0 --owner 0 --group 0 --numeric-owner --mode u+rwX,go+rX,go-w \
  --exclude __pycache__ -- $@ | gzip --no-name >"$archive"
