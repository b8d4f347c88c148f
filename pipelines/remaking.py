"""Making one model of another, quantised or converted, in a process of its own: a library that crashes is an error.

Here is what starts that process, tells how far it is, and says what went wrong. What it does is in the pipelines. No
backend.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, Any

from tenuto.errors import ModelLoadFailed

_LAST_WORDS = 2000
_LONGEST_LINE = 1 << 16


def remake(module: str, arguments: Sequence[str], told: Callable[[int, int], None]) -> None:
    """Run a module that makes a model. It writes a line of JSON for each step: `[done, total]`, or its `error`.

    `told` gets these numbers. What it raises, a keyboard interrupt too, ends the process.

    Raises:
        ModelLoadFailed: it could not be made; the text says why.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = {**os.environ, "PYTHONPATH": paths, "GGML_NO_BACKTRACE": "1"}
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=variables,
        )
        assert process.stdout is not None
        try:
            while line := process.stdout.readline(_LONGEST_LINE):
                _read(json.loads(line), told)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if code != 0:
            raise ModelLoadFailed(f"the model was not made: the process ended with {code}; {_tail(complaints)}")


def _read(step: Any, told: Callable[[int, int], None]) -> None:
    if isinstance(step, dict):
        raise ModelLoadFailed(str(step["error"]))
    done, total = step
    told(done, total)


def _tail(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS))
    lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return f"its last output: {' / '.join(lines[-3:])}" if lines else "it printed nothing"
