"""A zip file of somebody else's: looked at before it is believed, and unpacked whole or not at all, within bounds."""

import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path, PurePosixPath

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.config_files.reading import opened

MOST_BYTES = 512 << 20
MOST_UNPACKED_BYTES = 1 << 30
MOST_FILES = 50_000
"""And folders that hold them."""
MOST_DIRECTORY_BYTES = 8 << 20
"""Of the list of files, which is read at once."""
MOST_PATH_CHARACTERS = 512
_CHUNK = 1 << 20
_END, _END_BYTES = b"PK\x05\x06", 22
_END_64, _END_64_BYTES = b"PK\x06\x07", 20
"""What stands before the end of a larger one."""
_MOST_COMMENT = 1 << 16
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError, OSError)
"""What reading a zip file raises that is none, or not all of one."""


class Archive:
    """One that is open, with a list of files that can be unpacked. `digest` is of all of its bytes, in hex."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, digest: str) -> None:
        self._path, self._archive, self.digest = path, archive, digest
        self._entries = dict(_entries(path, archive))

    def read(self, name: str, most: int) -> bytes | None:
        """A file of at most so many bytes; None where there is none. Raises ConfigurationError."""
        if (entry := self._entries.get(name)) is None:
            return None
        with _reading(self._path), self._archive.open(entry) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise refused(self._path, f"{name} is larger than {most >> 10} KiB")
        return data

    def unpack(self, folder: Path, executables: tuple[str, ...] = ()) -> None:
        """Make the folder, which is there only once all is in it. `executables` can be started, whatever the zip says.

        Raises:
            ConfigurationError: the file is damaged or too large, or the folder cannot be written; nothing is left.
        """
        try:
            for each in (folder.parent.parent, folder.parent):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".unpacking-"))
        except OSError as exc:
            raise ConfigurationError(f"{folder} cannot be written: {exc.strerror or exc}") from None
        try:
            self._unpack(made, executables)
            made.replace(folder)
        except OSError as exc:
            raise ConfigurationError(f"{folder} cannot be written: {exc.strerror or exc}") from None
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _unpack(self, folder: Path, executables: tuple[str, ...]) -> None:
        left = MOST_UNPACKED_BYTES
        for name, entry in self._entries.items():
            path = folder / name
            if entry.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            is_executable = (entry.external_attr >> 16) & 0o111 or name in executables
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if is_executable else 0o600)
            with os.fdopen(descriptor, "wb") as file:
                for chunk in self._chunks(entry):
                    left -= len(chunk)  # what is there counts, not what the zip says of itself
                    if left < 0:
                        raise refused(self._path, f"it has more than {MOST_UNPACKED_BYTES >> 20} MiB in it")
                    file.write(chunk)

    def _chunks(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        with _reading(self._path), self._archive.open(entry) as source:
            while chunk := source.read(_CHUNK):
                yield chunk


@contextmanager
def archive(path: Path) -> Iterator[Archive]:
    """Open one.

    Raises:
        ConfigurationError: it cannot be read, is no zip file, or has something in it that is not unpacked.
    """
    with opened(path, MOST_BYTES, is_own=True) as file:
        _check_directory(path, file)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        with _reading(path):
            found = zipfile.ZipFile(file)
        with found:
            yield Archive(path, found, digest)


def refused(path: Path, problem: str) -> ConfigurationError:
    """What is wrong with it."""
    return ConfigurationError(f"{path} cannot be imported: {problem}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED:
        raise refused(path, "it is no zip file, or a damaged one") from None


def _check_directory(path: Path, file: BufferedReader) -> None:
    """Refuse a list of files that would fill the memory, before anything reads it.

    There is one place that says how long the list is. Where two could, a reader may take the other one.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _MOST_COMMENT - _END_BYTES - _END_64_BYTES, 0))
    tail = file.read()
    place = tail.find(_END)
    if place < 0 or len(tail) < place + _END_BYTES:
        raise refused(path, "it is no zip file, or a damaged one")
    if tail.count(_END) > 1 or _END_64 in tail[max(place - _END_64_BYTES, 0) : place]:
        raise refused(path, "its list of files is in a form that is not read here")
    files, length = (int.from_bytes(tail[place + at : place + at + of], "little") for at, of in ((10, 2), (12, 4)))
    if files > MOST_FILES or length > MOST_DIRECTORY_BYTES:
        raise refused(path, f"it has more than {MOST_FILES} files")


def _entries(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """All that is in it, by its place below the folder that it is unpacked in."""
    listed = archive.infolist()
    if len(listed) > MOST_FILES:
        raise refused(path, f"it has more than {MOST_FILES} files")
    seen: set[str] = set()
    folders: set[PurePosixPath] = set()
    for entry in listed:
        name = entry.filename.rstrip("/")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if not _is_below(name):
            raise refused(path, "the path of a file in it leads out of it, or is none")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise refused(path, f"{name} in it is neither a file nor a folder")
        if entry.flag_bits & 1 or entry.compress_type not in _METHODS:
            raise refused(path, f"{name} in it is encrypted, or packed in a way that is not read here")
        if name in seen:
            raise refused(path, f"{name} is in it twice")
        seen.add(name)
        folders.update(PurePosixPath(name).parents)
        if len(folders) > MOST_FILES:
            raise refused(path, f"it has more than {MOST_FILES} folders")
        yield name, entry


def _is_below(name: str) -> bool:
    if not name.isprintable() or "\\" in name or ":" in name or len(name) > MOST_PATH_CHARACTERS:
        return False
    parts = name.split("/")
    return not PurePosixPath(name).is_absolute() and all(part not in ("", ".", "..") for part in parts)
