#!/bin/sh
# Builds the llama.cpp peers (llama-batched-bench, and llama-server when asked) at the very commit that the installed
# llama-cpp-python carries, with the flags of its wheel, so that a comparison differs in nothing but the caller.
#   bench/peers.sh [TARGET ...]      default: llama-batched-bench
# Environment: PYTHON (default .venv/bin/python), SDIST (a llama_cpp_python-*.tar.gz at hand), JOBS (default 2).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=.ci/compiler-flags
. "$here/../.ci/compiler-flags"
# shellcheck source=bench/llama-source
. "$here/llama-source"

[ $# -gt 0 ] || set -- llama-batched-bench
# shellcheck disable=SC2086  # CMAKE_ARGS holds several flags, as pip takes them
"$cmake" -S "$source/vendor/llama.cpp" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DBUILD_SHARED_LIBS=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF ${CMAKE_ARGS:-}
"$cmake" --build "$out/build" --config Release -j "${JOBS:-2}" --target "$@"
for target in "$@"; do
    echo "built $out/build/bin/$target"
done
