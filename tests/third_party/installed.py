"""Servers of others, each installed from its registry into an environment of its own, once for all test runs.

They are kept in the user's cache folder, by name and version. A test is skipped only where the registry or Node.js is
missing; any other failure to install is a failure of the test.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

INSTALL_S = 240
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
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    folder = _CACHE / f"{package.replace('/', '-').lstrip('@')}-{version}"
    options = ("--no-audit", "--no-fund", "--silent", "--fetch-retries", "1")
    _install(folder, [npm, "install", *options, "--prefix", str(folder), f"{package}@{version}"])
    return node, str(folder / "node_modules" / package / "dist" / "index.js")


def _install(folder: Path, *commands: list[str]) -> None:
    """Run the commands, unless they have been run before; only a stamp says that all of them succeeded."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    stamp = folder / ".installed"
    with FileLock(f"{folder}.lock", timeout=INSTALL_S):
        if stamp.exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for command in commands:
            _run(command)
        stamp.touch()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    told = f"{done.stdout}\n{done.stderr}"
    if any(sign in told for sign in _UNREACHABLE):
        pytest.skip(f"the registry cannot be reached: {' '.join(command)}")
    pytest.fail(f"{' '.join(command)} failed:\n{told[-4000:]}")
