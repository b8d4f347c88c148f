"""A model is opened in a process of its own first, so that one that ends or hangs it is an error and not the end.

Here is what starts that process, bounds it, and remembers what came of it; what it does is in `tried.py`. No backend.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal

from tenuto import __version__
from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.cache_types import CacheType

# A hundredfold of what a small file takes, as a machine may be busy, and what a slow disk takes for a large one.
_SECONDS, _BYTES_A_SECOND = 120.0, 20 << 20
_ENDS = 1 << 20
"""So much at each end of a file is read for its digest."""
_LAST_WORDS = 2000
_PARTS = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_PACKAGES = {"gguf": ("llama_cpp", "jinja2"), "mlx": ("mlx", "mlx_lm", "tokenizers", "jinja2")}


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried: a file or folder of a kind, and what decides on which devices it runs."""

    kind: Literal["gguf", "mlx"]
    path: str
    gpu_layers: int
    threads: int
    projector: str = ""
    cache_type: CacheType = "f16"
    adapter: str = ""
    scale: float = 1.0


def require(trial: Trial, verdicts: Path) -> str:
    """Try a model, unless the very same one has passed before; gives in words when it was.

    Only that a model has passed is kept. What was refused is tried again: the cause may have been a library, a driver,
    or a machine without memory.

    Raises:
        ModelLoadFailed: it cannot be loaded, or it ended the process that tried it, or took too long.
    """
    files = list(_files(trial))
    kept = verdicts / f"{_digest(trial, files)}.json"
    if kept.exists():
        return "passed earlier; an unchanged file is not tried again"
    began = time.monotonic()
    _try(trial, sum(path.stat().st_size for path in files))
    took_s = round(time.monotonic() - began, 1)
    _keep(kept, {"path": trial.path, "passed": round(time.time()), "took_s": took_s})
    return f"passed in {took_s:g} s"


def _try(trial: Trial, file_bytes: int) -> None:
    seconds = round(_SECONDS + file_bytes / _BYTES_A_SECOND)
    # As the interpreter finds its modules here, but for those that lie where the user happens to be.
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = {**os.environ, "PYTHONPATH": paths, "GGML_NO_BACKTRACE": "1"}
    command = [
        sys.executable,
        "-P",
        "-m",
        "tenuto.pipelines.tried",
        json.dumps(asdict(trial)),
        str(seconds),
        str(file_bytes),
    ]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=complaints, env=variables, close_fds=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ModelLoadFailed(f"{_named(trial)} cannot be served: it was not loaded within {seconds} s") from None
        finally:
            process.kill()
            process.wait()
        answer = _tail(said)
        if code == 0 and answer == "passed":
            return
        if answer.startswith("{"):
            raise ModelLoadFailed(json.loads(answer)["error"])
        how = _in_words(code)
        raise ModelLoadFailed(
            f"{_named(trial)} cannot be served: it crashes the process that loads it ({how}); {_cause(complaints)}"
        )


def _named(trial: Trial) -> str:
    return f"{trial.path} with the adapter {trial.adapter}" if trial.adapter else trial.path


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _cause(complaints: IO[bytes]) -> str:
    lines = [line.strip() for line in _tail(complaints).splitlines() if line.strip()]
    telling = [line for line in lines if "GGML_ASSERT" in line or "terminate called" in line or "what()" in line]
    return f"its last output: {' / '.join(telling or lines[-3:])}" if lines else "it printed nothing"


def _tail(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS))
    return file.read().decode(errors="replace").strip()


def _files(trial: Trial) -> Iterator[Path]:
    """All files of a model: those of a folder, or the parts of a GGUF file, its projector and its adapter."""
    path = Path(trial.path)
    if trial.adapter:
        yield Path(trial.adapter)
    if trial.projector:
        yield Path(trial.projector)
    if path.is_dir():
        patterns = ("*", "additional_chat_templates/*")
        yield from sorted(file for pattern in patterns for file in path.glob(pattern) if file.is_file())
    elif parts := _PARTS.search(path.name):
        yield from sorted(path.parent.glob(f"{path.name[: parts.start()]}-?????-of-{parts[1]}.gguf"))
    else:
        yield path


def _digest(trial: Trial, files: list[Path]) -> str:
    """Tells one state of a model, and of what opens it, from any other.

    Reading gigabytes at every start would cost more than the trial. A change in the middle of a file shows in its
    times: nobody but the clock sets the time of an inode's last change.
    """
    how = f"{trial.kind} {trial.gpu_layers} {trial.cache_type} {trial.scale if trial.adapter else ''}"
    digest = hashlib.sha256(f"{__version__} {platform.platform()} {how}".encode())
    for package in _PACKAGES[trial.kind]:
        found = importlib.util.find_spec(package)
        places = [*(found.submodule_search_locations or [])] if found else []
        digest.update(f" {package} {[Path(place).stat().st_mtime_ns for place in places]}".encode())
    for path in files:
        about = path.stat()
        facts = (path.name, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)
        digest.update(repr(facts).encode())
        with path.open("rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(0, about.st_size - _ENDS))
            digest.update(file.read(_ENDS))
    return digest.hexdigest()


def _keep(place: Path, verdict: dict[str, object]) -> None:
    """Write it whole or not at all. Where nothing can be written, the next start tries the model again."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(verdict))
        partial.replace(place)
    except OSError:
        return
