"""What a cache outside of a backend depends on, as a name: one that another file or library has made is of no use."""

import platform
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

_ENDS = 1 << 20
"""So much at each end of a file is read: reading gigabytes at every start would cost more than the caches save."""


def cache_identity(files: Sequence[Path], made_by: Iterable[object]) -> str:
    """Names the caches of these files, as the library and settings `made_by` lay them out. Reads the disk.

    A change in the middle of a file shows in its time.

    Raises:
        OSError: a file cannot be read.
    """
    digest = blake2b(repr((platform.machine(), *made_by)).encode(), digest_size=16)
    for path in files:
        about = path.stat()
        digest.update(repr((about.st_size, about.st_mtime_ns)).encode())
        with path.open("rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(0, about.st_size - _ENDS))
            digest.update(file.read(_ENDS))
    return digest.hexdigest()
