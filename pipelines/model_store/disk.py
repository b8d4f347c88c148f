"""Changes of the disk that are whole or not there, whenever the process ends, and that last when the power goes."""

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

_CHUNK = 1 << 20


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file's content at once."""
    partial = path.with_name(f".{path.name}.new")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def move(path: Path, target: Path) -> None:
    """Give a file or folder another place on the same disk at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    sync_folder(target.parent)
    if path.parent != target.parent:
        sync_folder(path.parent)


def remove_folder(path: Path, leaving: Path) -> None:
    """Take a folder away: from one moment to the next it is not there, and what it held is freed afterwards."""
    leaving.mkdir(parents=True, exist_ok=True)
    gone = leaving / uuid.uuid4().hex
    move(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def free(leaving: Path) -> None:
    """Free what a process that has ended was taking away."""
    for gone in leaving.iterdir() if leaving.is_dir() else ():
        shutil.rmtree(gone, ignore_errors=True)


def sha256(path: Path, told: Callable[[int], None] = lambda _: None) -> str:
    """A file's digest, once all of it has reached the disk. `told` gets the bytes read since the last time."""
    digest = hashlib.sha256()
    with path.open("r+b" if os.access(path, os.W_OK) else "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            told(len(chunk))
        if file.writable():
            os.fsync(file.fileno())
    return digest.hexdigest()


def sync_folder(path: Path) -> None:
    """Let the names in a folder reach the disk, where the system can be asked to."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """The same for a folder and all folders in it."""
    for folder, _, _ in os.walk(path):
        sync_folder(Path(folder))
