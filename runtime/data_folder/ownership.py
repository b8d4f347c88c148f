"""The data folder: one process owns it at a time and tells the others where it can be reached. No SQL."""

import os
import secrets
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from tenuto.errors import ConfigurationError
from tenuto.runtime.data_folder import kept_key
from tenuto.sessions.private import make_private

_LOCK, _OWNER = "lock", "owner.json"
_OURS = (_LOCK, f"{_OWNER}*", f"{kept_key.NAME}*", "sessions.db*", "serve.log", "snapshots")
"""What there may be of ours in a data folder, which may hold other things as well."""
# Somebody who only asks for the owner holds the lock for an instant, and an owner has no entry at first and at last.
_PATIENCE_S = 0.2
_ENTRY_S = 2.0
_AGAIN_S = 0.01


class Owner(BaseModel):
    """Who holds a data folder. `url` is None while it starts; `secret` proves that one can read the folder."""

    model_config = ConfigDict(frozen=True)

    pid: int
    secret: str
    url: str | None = None


class DataFolder:
    """A data folder that this process owns until `release`. The kernel lets go of it when the process dies.

    `key` is 32 bytes that all its owners have, one after the other, and nobody else.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self.owner = Owner(pid=os.getpid(), secret=secrets.token_urlsafe(32))
        self.key = kept_key.kept_key(path)
        self._lock = lock
        _write(path / _OWNER, self.owner)

    @classmethod
    def acquire(cls, path: Path) -> Self:
        """Own the folder, made where there is none. Blocks for at most a moment.

        Raises:
            ConfigurationError: another process owns it, or the folder cannot be used, or kept from other users.
        """
        lock: FileLock | None = None
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_private(path, *_OURS)
            lock = _lock(path)
            lock.acquire(timeout=_PATIENCE_S)
            return cls(path, lock)
        except Timeout:
            owner = _read(path / _OWNER)
            who = (
                "another process"
                if owner is None
                else f"{owner.url or 'a server that is starting'} (process {owner.pid})"
            )
            raise ConfigurationError(
                f"the data folder {path} is in use by {who}; stop that server or choose another --data-dir"
            ) from None
        except OSError as exc:
            if lock is not None:
                lock.release()
            raise ConfigurationError(f"the data folder {path} cannot be used: {exc}") from exc

    def publish(self, url: str) -> None:
        """Tell other processes where this one can be reached."""
        self.owner = self.owner.model_copy(update={"url": url})
        _write(self.path / _OWNER, self.owner)

    def release(self) -> None:
        """Let go of the folder. More than once is fine."""
        if self._lock.is_locked:
            (self.path / _OWNER).unlink(missing_ok=True)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def read_owner(path: Path) -> Owner | None:
    """Who owns the folder now, None where nobody does. Blocks for a moment where an owner comes or goes.

    Raises:
        ConfigurationError: the folder belongs to somebody whose entry cannot be read.
    """
    if not path.is_dir():
        return None
    deadline = time.monotonic() + _ENTRY_S
    while True:
        if not _is_held(path):
            return None
        owner = _read(path / _OWNER)
        if owner is not None:
            return owner
        if time.monotonic() > deadline:
            raise ConfigurationError(f"the owner of the data folder {path} cannot be read")
        time.sleep(_AGAIN_S)


def _is_held(path: Path) -> bool:
    lock = _lock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError as exc:
        raise ConfigurationError(f"the data folder {path} cannot be used: {exc}") from exc
    lock.release()
    return False


def _lock(path: Path) -> FileLock:
    # Without the kernel's lock a dead owner would hold the folder for ever, so there is no falling back.
    return FileLock(path / _LOCK, mode=0o600, thread_local=False, fallback_to_soft=False)


def _read(path: Path) -> Owner | None:
    try:
        return Owner.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _write(path: Path, owner: Owner) -> None:
    """Replace the file in one step, readable by its user alone."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(owner.model_dump_json())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
