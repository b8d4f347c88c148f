"""What the doctor sees of the machine: what is installed, and the data folder."""

import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path

from tenuto import __version__
from tenuto.errors import ConfigurationError
from tenuto.runtime.data_folder.local_server import LOG_NAME
from tenuto.runtime.data_folder.ownership import Owner, read_owner
from tenuto.runtime.terminal.report import Section, bytes_text

LEAST_FREE = 1 << 30
"""Bytes free on the data folder's disk below which the doctor warns."""
_INSTALL_MLX = "pip install 'tenuto[mlx]'"
_GPU_BUILDS = {"linux": "GGML_CUDA=on", "win32": "GGML_CUDA=on", "darwin": "GGML_METAL=on"}


def installed() -> Section:
    """Python, Tenuto and the backends."""
    section = Section("installed")
    section.facts |= {
        "tenuto": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
    }
    _llama(section)
    _mlx(section)
    return section


def _llama(section: Section) -> None:
    version = _version("llama_cpp_python")
    if version is None:
        section.facts["llama-cpp-python"] = "not installed"
        section.wrong("GGUF models cannot be loaded: llama-cpp-python is missing", "pip install 'tenuto[llama]'")
        return
    section.facts["llama-cpp-python"] = version
    try:
        import llama_cpp

        offloads = bool(llama_cpp.llama_supports_gpu_offload())
        system = llama_cpp.llama_print_system_info().decode(errors="replace")
    except (OSError, RuntimeError, AttributeError, ImportError) as exc:
        section.wrong(
            f"llama-cpp-python {version} cannot be loaded: {exc}",
            "rebuild it for this machine: pip install --force-reinstall --no-cache-dir llama-cpp-python",
        )
        return
    named = [name for name in ("CUDA", "Metal", "ROCm", "Vulkan", "SYCL") if name.lower() in system.lower()]
    section.facts["built with"] = named or (["a GPU backend"] if offloads else ["CPU only"])
    if not offloads and (shutil.which("nvidia-smi") or _is_apple()):
        build = _GPU_BUILDS.get(sys.platform, "GGML_CUDA=on")
        section.wrong(
            "this machine has a GPU, but llama-cpp-python was built without GPU support",
            f"CMAKE_ARGS=-D{build} pip install --force-reinstall --no-cache-dir llama-cpp-python",
            broken=False,
        )


def _mlx(section: Section) -> None:
    version, above = _version("mlx"), _version("mlx-lm")
    section.facts["mlx"] = version or "not installed"
    if version is None or above is None:
        if version is not None or _is_apple():
            missing = "mlx-lm" if version else "mlx"
            section.wrong(f"MLX models cannot be loaded: {missing} is missing", _INSTALL_MLX, broken=False)
        return
    section.facts["mlx-lm"] = above
    try:
        from tenuto.pipelines.mlx import runs_on

        section.facts["mlx"] = f"{version}, {runs_on()}"
    except (OSError, RuntimeError, AttributeError, ImportError) as exc:
        section.wrong(f"mlx {version} cannot be loaded: {exc}", _INSTALL_MLX)


def data_folder(path: Path) -> tuple[Section, Owner | None]:
    """The data folder, and the server that owns it."""
    section = Section("data folder", {"path": str(path)})
    try:
        owner = read_owner(path)
    except ConfigurationError as exc:
        section.wrong(str(exc), f"make {path} yours and writable, or choose another folder with --data-dir")
        return section, None
    section.facts["owner"] = "nobody" if owner is None else f"process {owner.pid}, {owner.url or 'still starting'}"
    database = [file for file in path.glob("sessions.db*") if file.is_file()] if path.is_dir() else []
    section.facts["database"] = bytes_text(sum(file.stat().st_size for file in database)) if database else "none yet"
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    section.facts["free disk"] = bytes_text(free)
    if free < LEAST_FREE:
        section.wrong(
            f"only {bytes_text(free)} free on the disk of {existing}",
            "free some space: a server that cannot write refuses new turns",
            broken=False,
        )
    log = path / LOG_NAME
    if log.is_file():
        section.facts["log of servers started in the background"] = str(log)
    return section, owner


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_apple() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"
