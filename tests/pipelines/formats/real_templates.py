"""The chat templates of real models: those that llama-cpp-python's source distribution carries. Kept in the cache."""

import io
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from tenuto.pipelines.finding import user_cache

_PLACE = "vendor/llama.cpp/models/templates/"
_FETCH_S = 120


@cache
def templates() -> dict[str, str]:
    """Their texts by their names. Skips where they are not here and the registry cannot be reached."""
    kept = user_cache() / "templates" / version("llama-cpp-python")
    if not (kept / "all").exists():
        _fetch(kept)
    return {file.stem: file.read_text() for file in sorted(kept.glob("*.jinja"))}


def _fetch(kept: Path) -> None:
    wanted = f"llama-cpp-python=={version('llama-cpp-python')}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-binary", "llama-cpp-python", "--dest", folder, wanted]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"the source distribution of {wanted}, which has the templates, cannot be fetched: {error}")
        (archive,) = Path(folder).glob("*.tar.gz")
        kept.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as files:
            for member in files:
                if _PLACE in member.name and member.name.endswith(".jinja"):
                    content = files.extractfile(member) or io.BytesIO()
                    (kept / Path(member.name).name).write_bytes(content.read())
    (kept / "all").touch()
