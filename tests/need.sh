#!/usr/bin/env bash
# Makes sure that Debian packages are there: installs them where this may be done (root, or sudo without a
# password), and otherwise says in one line what to type.
#   need.sh PACKAGE...          each named as in Debian
#   need.sh --python PYTHON     a Python of at least 3.11 with venv
set -euo pipefail

fail() { echo "error: $*" >&2; exit 1; }

if [ "${1:-}" = --python ]; then
  python=$2
  command -v "$python" >/dev/null || fail "$python is missing. Install it: sudo apt-get install python3 python3-venv"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old: 3.11 or later is needed. Name one: make PYTHON=python3.12 ..."
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python has no venv. Install it: sudo apt-get install python3-venv"
  exit 0
fi

missing=()
for package in "$@"; do
  command -v "$package" >/dev/null || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null ||
  fail "missing programs: ${missing[*]}. They are Debian packages of these names; install what your system calls them."
if [ "$(id -u)" = 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  fail "missing packages. Install them: sudo apt-get install ${missing[*]}"
fi
echo "installing Debian packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
# Without this, Debian starts the servers at once, on the ports that the tests and the demo want to use.
"${as_root[@]}" env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
