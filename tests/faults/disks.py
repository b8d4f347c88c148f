"""Disks without room, real ones: a small file system of its own, or the limit that the system sets to a process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.server import Server

if sys.platform != "win32":
    import resource

SIZE = "8m"


class Disk(Protocol):
    """Where a server keeps its data, with room until it is `fill`ed."""

    folder: Path

    def fill(self, server: Server) -> None:
        """Leave the server no room."""

    def free(self) -> None:
        """Give the room back."""


class Small:
    """A file system of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast: Path | None = None

    def fill(self, server: Server) -> None:
        del server
        self._ballast = fill(self.folder)

    def free(self) -> None:
        assert self._ballast is not None
        self._ballast.unlink()


class Limited:
    """The process may not let any file grow, its log neither: for it every disk is full. Needs no rights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, server: Server) -> None:
        assert server.process is not None
        assert sys.platform == "linux"
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def free(self) -> None:
        """The next process has no such limit."""


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A small file system at a folder that this makes. Skips the test where none can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tenuto-test", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip(f"a file system of its own cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    path = disk / "ballast"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError:
                pass
    return path
