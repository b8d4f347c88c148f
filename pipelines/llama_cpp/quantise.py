"""The process in which llama.cpp quantises a GGUF file. Run by `remaking` alone: it tells each tensor that is done."""

import ctypes
import json
import re
import sys
from collections import deque

import llama_cpp as lib

_STEP = re.compile(r"\[ *(\d+)/ *(\d+)\]")
_PREFIXES = ("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_")


def types() -> dict[str, int]:
    """The quantisations that the library makes, by their names."""
    return {
        name.removeprefix(prefix): getattr(lib, name)
        for prefix in _PREFIXES
        for name in dir(lib)
        if name.startswith(prefix)
    }


def main(source: str, target: str, kind: str, threads: str, requantises: str) -> None:
    """Quantise a file; `requantises` is 1 where it may be one that is quantised already."""
    last: deque[str] = deque(maxlen=5)

    def on_line(level: int, text: bytes, data: ctypes.c_void_p) -> None:
        del level, data
        line = text.decode(errors="replace")
        if found := _STEP.match(line):
            _say([int(found[1]), int(found[2])])
        elif line.strip():
            last.append(line.strip())

    kinds = types()
    if kind not in kinds:
        _fail(f"llama.cpp makes no quantisation {kind}; it makes {', '.join(sorted(kinds))}")
    callback = lib.llama_log_callback(on_line)
    lib.llama_log_set(callback, ctypes.c_void_p(0))
    settings = lib.llama_model_quantize_default_params()
    settings.nthread, settings.ftype, settings.allow_requantize = int(threads), kinds[kind], requantises == "1"
    code = lib.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(settings))
    if code != 0:
        _fail(f"{source} cannot be quantised as {kind}; llama.cpp says: {' '.join(last)}")


def _say(step: object) -> None:
    sys.stdout.write(json.dumps(step) + "\n")
    sys.stdout.flush()


def _fail(why: str) -> None:
    _say({"error": why})
    sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
