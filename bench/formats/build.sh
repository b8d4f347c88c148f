#!/bin/sh
# Builds the judge: llama.cpp's parser of answers from the source that the installed llama-cpp-python carries, linked to
# the libraries that it has built already. About two minutes on two cores.
# Environment: PYTHON (default .venv/bin/python), SDIST (a llama_cpp_python-*.tar.gz at hand), JOBS (default 2).
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=bench/llama-source
. "$here/llama-source"
libraries=$("$python" -c 'import importlib.util as u; print(u.find_spec("llama_cpp").submodule_search_locations[0])')/lib
nice -n 19 "$cmake" -S "$here/formats" -B "$out/judge" -DLLAMA_CPP="$source/vendor/llama.cpp" \
    -DLLAMA_LIBRARIES="$libraries"
nice -n 19 "$cmake" --build "$out/judge" -j "${JOBS:-2}"
ln -sfn "$source/vendor/llama.cpp" "$out/llama.cpp"
echo "built $out/judge/judge"
