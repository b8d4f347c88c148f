"""What is kept of a login at an MCP server: a file for its user alone, written whole, and by one process at a time."""

import logging
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from filelock import FileLock, Timeout
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, Field, ValidationError

logger = logging.getLogger(__name__)

LOCK_S = 60.0
_LOOK_AGAIN_S = 0.05
_SOON_S = 15.0
"""A token that ends so soon is as one that has ended: the request has a way to go."""


class Kept(BaseModel):
    """A login. `url` is the server's: what is kept for another one is not used. `wanted` are scopes that the server
    has asked for since."""

    url: str
    client: OAuthClientInformationFull | None = Field(None, repr=False)
    tokens: OAuthToken | None = Field(None, repr=False)
    expires_at: float | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    wanted: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is no access token, or it ends about now."""
        return self.tokens is None or (self.expires_at is not None and time.time() > self.expires_at - _SOON_S)

    def take(self, tokens: OAuthToken) -> None:
        """Keep new tokens."""
        self.tokens = tokens
        self.expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in


class TokenFile:
    """One server's file. Reading needs no lock; who reads to write holds it."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        self._path, self._url = folder / f"{name}.json", url

    async def read(self) -> Kept:
        """What is kept, which may be nothing."""
        return await anyio.to_thread.run_sync(self._read)

    async def write(self, kept: Kept) -> None:
        """Keep it. Raises OSError."""
        await anyio.to_thread.run_sync(self._write, kept)

    async def remove(self) -> bool:
        """Keep nothing; whether there was something. Raises OSError."""
        async with self.locked():
            try:
                await anyio.to_thread.run_sync(self._path.unlink)
            except FileNotFoundError:
                return False
            return True

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None, None]:
        """Keep all others from writing, of this process and of others. Raises TimeoutError."""
        await anyio.to_thread.run_sync(self._make_folder)
        lock = FileLock(self._path.with_suffix(".lock"), mode=0o600, thread_local=False, blocking=False)
        with anyio.fail_after(LOCK_S):
            while True:
                try:
                    lock.acquire()
                    break
                except Timeout:
                    await anyio.sleep(_LOOK_AGAIN_S)
        try:
            yield
        finally:
            lock.release()

    def stamp(self) -> tuple[int, int] | None:
        """What changes with each write."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _make_folder(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _read(self) -> Kept:
        try:
            kept = Kept.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return Kept(url=self._url)
        except (OSError, ValidationError):
            logger.warning("%s cannot be read: log in again", self._path)
            return Kept(url=self._url)
        return kept if kept.url == self._url else Kept(url=self._url)

    def _write(self, kept: Kept) -> None:
        self._make_folder()
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)  # for its user alone
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(kept.model_dump_json(exclude_none=True))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
