#!/usr/bin/env bash
# Installs the exporters that `peers` measures beside ours: PyPI's into a virtual environment each, in the folder
# that is named, and Debian's where this may be done.
#   peers_install.sh FOLDER PYTHON
set -euo pipefail
folder=$1 python=$2
bash "$(dirname "$0")/../tests/need.sh" prometheus-node-exporter prometheus-nginx-exporter
for package in prometheus-pve-exporter==3.10.2 prometheus-es-exporter==0.14.1; do
  [ -x "$folder/${package%%=*}/bin/python" ] || "$python" -m venv "$folder/${package%%=*}"
  "$folder/${package%%=*}/bin/python" -m pip install -q --disable-pip-version-check "$package"
done
