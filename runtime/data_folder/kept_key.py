"""A key that only this folder's owner has, kept over restarts, so that the next owner can read what it has sealed."""

import logging
import os
import secrets
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)

NAME = "tenuto.key"
_BYTES = 32


def kept_key(folder: Path) -> bytes:
    """The key of the folder, made where there is none. The folder's owner alone calls this. Raises OSError."""
    path = folder / NAME
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return _made(path)
    if len(key) != _BYTES:
        logger.warning("%s is damaged and is made anew: what was sealed with it is no longer taken", path)
        return _made(path)
    return key


def _made(path: Path) -> bytes:
    key = secrets.token_bytes(_BYTES)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # for its user alone
    with os.fdopen(handle, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
    return key
