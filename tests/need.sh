#!/usr/bin/env bash
# Makes sure that Debian packages are there: installs them where this may be done (root, or sudo without a
# password), and otherwise says in one line what to type.
#   need.sh PACKAGE...          each named as in Debian
#   need.sh --python PYTHON     a Python of at least 3.11 with venv
set -euo pipefail

fail() { echo "error: $*" >&2; exit 1; }

install() {
  command -v apt-get >/dev/null ||
    fail "missing: $*. They are Debian packages of these names; install what your system calls them."
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null ||
      fail "missing packages. Install them: sudo apt-get install $*"
    as_root=(sudo -n)
  fi
  echo "installing Debian packages: $*" >&2
  "${as_root[@]}" apt-get update -qq
  # At run level 1 Debian does not start the servers, which would take the ports of the tests and the demo.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

has() {
  case $1 in
    # Ubuntu's chromium is a snap; any of these browsers serves.
    chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
    systemd) command -v systemd-analyze ;;
    netavark | aardvark-dns) ls "/usr/lib/podman/$1" ;;
    *) command -v "$1" ;;
  esac >/dev/null
}

if [ "${1:-}" = --python ]; then
  python=$2
  if ! { command -v "$python" >/dev/null && "$python" -c 'import ensurepip, venv' 2>/dev/null; }; then
    [ "$python" = python3 ] || fail "$python is missing, or has no venv"
    install python3 python3-venv
  fi
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old: 3.11 or later is needed. Name one: make PYTHON=python3.12 ..."
  exit 0
fi

missing=()
for package in "$@"; do
  has "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
