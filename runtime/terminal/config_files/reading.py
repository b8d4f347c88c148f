"""Reading a configuration file: bounded, and never what is not a file."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from tenuto.errors import ConfigurationError

MOST_BYTES = 32 << 20
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class NoSuchFile(ConfigurationError):
    """There is no file of that name."""


def text_of(path: Path, *, is_own: bool = False) -> str | None:
    """What is in the file; None where there is none. `is_own` as in `opened`.

    Raises:
        ConfigurationError: it cannot be read; the text names the file and shows nothing of it.
    """
    try:
        with opened(path, MOST_BYTES, is_own=is_own) as file:
            return file.read(MOST_BYTES).decode("utf-8")
    except NoSuchFile:
        return None
    except UnicodeDecodeError as exc:
        raise _refused(path, f"it is not UTF-8 at byte {exc.start}") from None


@contextmanager
def opened(path: Path, most_bytes: int, *, is_own: bool = False) -> Iterator[BufferedReader]:
    """The file, to read: no folder, no pipe, and of so many bytes at most.

    With `is_own`, the file itself must be the user's, or the system's: neither a link nor what others have put there.

    Raises:
        NoSuchFile: there is none.
        ConfigurationError: it cannot be read.
    """
    with _opened(path, is_own=is_own) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "it is not a file")
        if is_own and hasattr(os, "geteuid") and found.st_uid not in (0, os.geteuid()):
            raise _refused(path, "it belongs to somebody else; what they write there would be started as you")
        if found.st_size > most_bytes:
            raise _refused(path, f"it is larger than {most_bytes >> 20} MiB")
        yield file


def _opened(path: Path, *, is_own: bool) -> BufferedReader:
    try:
        if is_own and path.is_symlink():
            raise _refused(path, f"it is a link; name {path.resolve()} instead, if that is meant")
        return os.fdopen(os.open(path, _FLAGS | (getattr(os, "O_NOFOLLOW", 0) if is_own else 0)), "rb")
    except FileNotFoundError:
        raise NoSuchFile(f"there is no file {path}") from None
    except (OSError, RuntimeError) as exc:  # RuntimeError: links in a circle
        raise _refused(path, getattr(exc, "strerror", None) or str(exc)) from None


def _refused(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{path} cannot be read: {problem}")
