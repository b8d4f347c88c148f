"""Who has a folder of snapshots: one store at a time, in whichever process. Two would each take the whole budget."""

import errno
import os
import sys
from pathlib import Path
from typing import Protocol

if sys.platform != "win32":
    import fcntl

_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class Ownership(Protocol):
    """Of one folder, as one store has it or not. Any thread, one at a time."""

    def take(self) -> bool:
        """Have the folder from now on; False where another has it. Does not wait."""

    def give(self) -> None:
        """Let others have it."""


class FolderLock:
    """By a lock on the folder itself, which ends with its process. A system that has no such locks has no owners: there
    each store takes the folder for its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Have the folder from now on; False where another has it."""
        if sys.platform == "win32":
            return True
        while self._descriptor is None:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)  # an empty one may have been taken away since
                descriptor = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # who uses the folder is told what is wrong
                return True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                return error.errno not in _TAKEN
            if self._is_there(descriptor):
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        return True

    def _is_there(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._folder.stat())
        except OSError:
            return False

    def give(self) -> None:
        """Let others have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
