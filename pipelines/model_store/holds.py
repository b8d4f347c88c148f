"""Who uses a version: whatever has loaded it holds a lock that ends with its process, so that nobody removes it."""

import os
from pathlib import Path
from typing import IO

try:
    import fcntl
except ModuleNotFoundError:  # Windows, which lets nobody remove a file that is open
    fcntl = None  # type: ignore[assignment]


class Hold:
    """A version is in use for as long as this is not released. Any thread."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def release(self) -> None:
        """Let it go; more than once does no harm."""
        self._file.close()


def hold(lock_file: Path) -> Hold | None:
    """Hold a version by the lock file beside its files; None where it has gone meanwhile."""
    try:
        file = lock_file.open("rb")
    except OSError:
        return None
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_SH)  # whoever has it alone has it for the moment of a rename
    try:
        if os.path.samestat(os.fstat(file.fileno()), lock_file.stat()):
            return Hold(file)
    except OSError:
        pass
    file.close()
    return None


def claim(lock_file: Path) -> Hold | None:
    """Have a version alone; None where somebody holds it."""
    file = lock_file.open("rb")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
    return Hold(file)
