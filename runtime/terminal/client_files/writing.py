"""A client's own file, changed whole or not at all, with what was there kept beside it. The user has asked for it."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.client_files.changes import Change

BACKUP = ".before-tenuto"
MOST_BYTES = 64 << 20


def text_of(path: Path) -> str | None:
    """What is in the file; None where there is none.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigurationError(f"{path} cannot be read: it is larger than {MOST_BYTES >> 20} MiB")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"{path} cannot be read: it is not UTF-8 at byte {exc.start}") from None
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror or exc}") from exc


def change(path: Path, change: Change, otherwise: str) -> list[str]:
    """Change it; what was done, in words. What was in it before is kept beside it, the first time.

    A file that is new is for its user alone; any other keeps its mode, and a link stays one. `otherwise` is what to do
    where this cannot be done.

    Raises:
        ConfigurationError: it cannot be read, cannot be added to, or cannot be written; it is as it was.
    """
    before = text_of(path)
    try:
        after = change(before or "")
        data = after.encode()
    except ValueError as exc:
        raise ConfigurationError(f"{path} cannot be added to: {exc}; {otherwise}") from exc
    if after == before:
        return [f"{path} has it already."]
    try:
        kept = keep(path)
        _replace(path, before, data)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be written: {exc.strerror or exc}") from exc
    return [f"Wrote {path}.", *kept]


def keep(path: Path) -> list[str]:
    """Keep what is in the file beside it, unless that was done before; in words. Raises OSError."""
    backup = path.with_name(path.name + BACKUP)
    if not path.exists() or backup.exists():
        return []
    descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(path.read_bytes())
    backup.chmod(path.stat().st_mode & 0o777)
    return [f"What it was is in {backup}."]


def _replace(path: Path, before: str | None, after: bytes) -> None:
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # for its user alone
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            was = target.stat()
            new.chmod(was.st_mode & 0o777)
            if hasattr(os, "chown"):
                with suppress(PermissionError):
                    os.chown(new, was.st_uid, was.st_gid)
        if text_of(target) != before:
            raise ConfigurationError(f"{path} was changed by somebody else meanwhile; try again")
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
