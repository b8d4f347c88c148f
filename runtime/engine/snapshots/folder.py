"""The folder of one model's snapshots: what its files are called, and the changes of it that are whole or not there.

ROOT / digest of the model's fingerprint / digest of the sequence's name + ".kv", or + ".tried" from when it is handed
out until it has served. One thread changes it, but for `mark`; any may read.
"""

import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from tenuto.pipelines.model_store.disk import sync_folder
from tenuto.runtime.engine.snapshots.file import Flaw, Packed, Unusable
from tenuto.runtime.engine.snapshots.ownership import FolderLock
from tenuto.sessions.private import make_private

_KEPT, _TRIED, _PARTIAL = ".kv", ".tried", ".partial"
_ALL = (_KEPT, _TRIED, _PARTIAL)
"""In this order they are taken away: one that is marked meanwhile is found by its next name."""
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# What lies there under a file's name may be anything: a link is not followed, a pipe not waited for.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

logger = logging.getLogger(__name__)


class Folder:
    """One model's. Making it makes the folder, which its user alone can enter.

    Raises:
        ConfigurationError: it is open to others, and that cannot be changed.
        OSError: it cannot be made.
    """

    def __init__(self, root: Path, fingerprint: str) -> None:
        self.path = self._path = root / _digest(fingerprint)
        for folder in (root, self._path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_private(folder)

    def stems(self) -> tuple[list[str], list[str]]:
        """Those of all snapshots, the one written longest ago first; and those that were tried as a process ended. What
        it was writing is removed.

        Raises:
            OSError: the folder cannot be read.
        """
        found: list[tuple[float, str]] = []
        tried: list[str] = []
        for path in list(self._path.iterdir()):
            if path.suffix == _PARTIAL:
                _try_unlink(path)
            elif path.suffix == _TRIED:
                tried.append(path.stem)
            elif path.suffix == _KEPT:
                with suppress(OSError):
                    found.append((path.lstat().st_mtime, path.stem))
        return [stem for _, stem in sorted(found)], tried

    def mark(self, stem: str) -> None:
        """From now on a snapshot is being tried: a process that ends before `unmark` has perhaps ended of it.

        Raises:
            FileNotFoundError: there is none.
            OSError: it is not marked.
        """
        try:
            os.rename(self._path / (stem + _KEPT), self._path / (stem + _TRIED))  # noqa: PTH104
        except FileNotFoundError:
            if not (self._path / (stem + _TRIED)).exists():
                raise

    def unmark(self, stem: str) -> None:
        """One that is being tried has served. Raises OSError where it stays marked."""
        with suppress(FileNotFoundError):  # it was dropped, or there is a new one
            os.rename(self._path / (stem + _TRIED), self._path / (stem + _KEPT))  # noqa: PTH104

    @contextmanager
    def reading(self, stem: str) -> Iterator[int]:
        """Open a snapshot's file.

        Raises:
            Unusable: it is no file that can be read.
            FileNotFoundError: there is none.
        """
        try:
            descriptor = self._open(stem)
        except FileNotFoundError:
            raise
        except OSError:
            raise Unusable(Flaw.UNREADABLE) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unusable(Flaw.UNREADABLE)
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, stem: str) -> int:
        for suffix in (_KEPT, _TRIED):
            with suppress(FileNotFoundError):
                return os.open(self._path / (stem + suffix), _READ | _CAREFULLY)
        return os.open(self._path / (stem + _KEPT), _READ | _CAREFULLY)  # its mark was taken away in between

    def write(self, stem: str, packed: Packed, between: Callable[[], None]) -> None:
        """Put a snapshot where there is none, or in place of the one there is. What `between` raises ends it.

        It is not told to reach the disk: what a loss of power leaves of it does not pass its checksums.

        Raises:
            OSError: it could not be written; what there was is still there.
        """
        partial = self._path / (stem + _PARTIAL)
        try:
            _unlink(partial)  # there is one where it could not be taken away
            descriptor = os.open(partial, _CREATE, 0o600)
            try:
                packed.write(descriptor, between)
            finally:
                os.close(descriptor)
            between()
            os.replace(partial, self._path / (stem + _KEPT))  # noqa: PTH105 - as the other calls that change the disk
            _unlink(self._path / (stem + _TRIED))
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)  # noqa: PTH108
            raise

    def remove(self, stem: str) -> None:
        """Take away a snapshot where there is one, and what there is of one that could not be written.

        Raises:
            OSError: some of it is still there.
        """
        for suffix in _ALL:
            _unlink(self._path / (stem + suffix))

    def sync(self) -> None:
        """Return when what was removed stays so even if the power goes. Raises OSError where that is not known."""
        with suppress(FileNotFoundError):  # somebody has taken the whole folder away
            sync_folder(self._path)

    def free_bytes(self) -> int:
        """What the disk has room for. Raises OSError where that is not known."""
        return shutil.disk_usage(self._path).free


def stem_of(sequence: str) -> str:
    """What the file of a sequence is called."""
    return _digest(sequence)


def forget(root: Path, sequence: str) -> None:
    """Take away the snapshots that any model has of a sequence, after those that are open have dropped it. Blocking.

    Raises:
        OSError: one of them may still be there.
    """
    for folder in _folders(root):
        paths = [folder / (stem_of(sequence) + suffix) for suffix in _ALL]
        there = [path for path in paths if os.path.lexists(path)]
        for path in paths if there else ():
            _unlink(path)
        if there:
            sync_folder(folder)


def expire(root: Path, before: float) -> None:
    """Take away, of all models, what was written before then, in seconds since 1970; and the folders left empty.

    For the folders that no store has: a store sees to its own. Blocking. What cannot be removed is logged.
    """
    for folder in _folders(root):
        lock = FolderLock(folder)
        if not lock.take():
            continue
        try:
            for path in list(folder.iterdir()):
                if path.lstat().st_mtime < before:
                    _unlink(path)
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        except OSError as error:
            logger.warning("old snapshots in %s cannot be removed: %s", folder, error)
        finally:
            lock.give()


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _digest(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _try_unlink(path: Path) -> None:
    try:
        _unlink(path)
    except OSError as error:  # the others serve without it
        logger.warning("the snapshot %s cannot be removed: %s", path.name, error)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
