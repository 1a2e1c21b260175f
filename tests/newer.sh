#!/usr/bin/env bash
# Unpacks programs of Debian's newest suite beside the installed ones, which stay as they are:
#   newer.sh FOLDER [PACKAGE...]     into FOLDER/usr/bin
# Prometheus 3 and VictoriaMetrics behave otherwise than those of Debian 12, and people run them. The suite
# changes: a test must do without.
set -euo pipefail
folder=$1
shift
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(prometheus promtool victoria-metrics prometheus-alertmanager)
for program in "${packages[@]}"; do
  [ -x "$folder/usr/bin/$program" ] || missing=1
done
[ -n "${missing:-}" ] || exit 0
command -v apt-get >/dev/null || { echo "error: needs Debian's apt-get" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/sources" "$work/lists/partial" "$work/cache/archives/partial" "$work/packages" "$folder"
# The machine's own mirror, whichever that is.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' | head -n 1)
[ -n "$mirror" ] || { echo "error: apt knows no mirror of Debian: apt-get update" >&2; exit 1; }
cat > "$work/sources/newest.sources" <<END
Types: deb
URIs: $mirror
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/none" -o "Dir::Etc::sourceparts=$work/sources"
  -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
"${apt[@]}" update
(cd "$work/packages" && "${apt[@]}" download "${packages[@]}")
for package in "$work"/packages/*.deb; do
  dpkg -x "$package" "$folder"
done
