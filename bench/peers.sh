#!/bin/sh
# Builds the llama.cpp peers (llama-batched-bench, and llama-server when asked) at the very commit that the installed
# llama-cpp-python carries, with the flags of its wheel, so that a comparison differs in nothing but the caller.
#   bench/peers.sh [TARGET ...]      default: llama-batched-bench
# Environment: PYTHON (default .venv/bin/python), SDIST (a llama_cpp_python-*.tar.gz at hand), JOBS (default 2).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/../.venv/bin/python}
out=$here/peers
# shellcheck source=.ci/compiler-flags
. "$here/../.ci/compiler-flags"
version=$("$python" -c 'from importlib.metadata import version; print(version("llama-cpp-python"))')
source=$out/llama_cpp_python-$version
sdist=${SDIST:-$source.tar.gz}

mkdir -p "$out"
[ -f "$sdist" ] || "$python" -m pip download --no-deps --no-binary llama-cpp-python \
    --dest "$out" "llama-cpp-python==$version"
[ -d "$source" ] || tar -xzf "$sdist" -C "$out"

cmake=$(command -v cmake || true)
if [ -z "$cmake" ]; then
    "$python" -m venv "$out/tools"
    "$out/tools/bin/pip" install --quiet cmake ninja
    cmake=$out/tools/bin/cmake
fi
[ $# -gt 0 ] || set -- llama-batched-bench
# shellcheck disable=SC2086  # CMAKE_ARGS holds several flags, as pip takes them
"$cmake" -S "$source/vendor/llama.cpp" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DBUILD_SHARED_LIBS=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF ${CMAKE_ARGS:-}
"$cmake" --build "$out/build" --config Release -j "${JOBS:-2}" --target "$@"
for target in "$@"; do
    echo "built $out/build/bin/$target"
done
