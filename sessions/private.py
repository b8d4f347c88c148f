"""A data folder that its user alone can read: what there is of it is tightened, new files are made so. No content."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tenuto.errors import ConfigurationError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO

logger = logging.getLogger(__name__)


def make_private(folder: Path, *names: str) -> None:
    """Take from all others what they may do with a folder and with what in it matches these globs.

    Raises:
        ConfigurationError: the folder is shared with others, or belongs to somebody else; the text says what to do.
        OSError: it cannot be read.
    """
    mode = folder.stat().st_mode
    if mode & stat.S_ISVTX:
        raise ConfigurationError(
            f"the data folder {folder} is shared by all users (its mode is {_shown(mode)}); choose a --data-dir for"
            f" tenuto alone, such as {folder / 'tenuto'}"
        )
    _tighten(folder)
    for path in sorted({path for name in names for path in folder.glob(name)}):
        for each in (path, *_below(path)):
            _tighten(each)


def make_private_file(path: Path) -> None:
    """Make a file that its user alone can read, where there is none; tighten the one that there is."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _tighten(path)


def _below(path: Path) -> Iterator[Path]:
    if path.is_dir() and not path.is_symlink():
        for folder, folders, files in os.walk(path):
            yield from (Path(folder, name) for name in (*folders, *files))


def _tighten(path: Path) -> None:
    mode = path.stat().st_mode
    if os.name != "posix" or not mode & _OTHERS:  # elsewhere a mode says nothing of others
        return
    try:
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        left = path.stat().st_mode
    except PermissionError:
        left = mode
    if left & _OTHERS:  # a filesystem without modes says yes and does nothing
        raise ConfigurationError(
            f"{path} is open to other users (its mode is {_shown(left)}), and this user cannot change that; run"
            f" chmod go= {path} as its owner, or choose another --data-dir, which may be a new folder inside"
        )
    logger.warning("%s was open to other users (its mode was %s); now it is closed to them", path, _shown(mode))


def _shown(mode: int) -> str:
    return f"{stat.S_IMODE(mode):04o}"
