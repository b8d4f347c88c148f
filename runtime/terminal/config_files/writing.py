"""A configuration file changed whole or not at all, with what was there kept beside it. The user has asked for it."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.config_files.reading import text_of

BACKUP = ".before-tenuto"
PRIVATE = 0o600

Change = Callable[[str], str]
"""From the text that is there to the text that shall be; without a file, the text is empty. Raises ValueError."""


def change(path: Path, change: Change, otherwise: str, *, is_own: bool = False, is_private: bool = False) -> list[str]:
    """Change it; what was done, in words. What was in it before is kept beside it, the first time.

    A file that is new, or `is_private`, is for its user alone; any other keeps its mode. A link stays one, unless the
    file `is_own`: then it is refused, as by `text_of`. `otherwise` is what to do where this cannot be done.

    Raises:
        ConfigurationError: it cannot be read, cannot be added to, or cannot be written; it is as it was.
    """
    before = text_of(path, is_own=is_own)
    try:
        after = change(before or "")
        data = after.encode()
    except ValueError as exc:
        raise ConfigurationError(f"{path} cannot be added to: {exc}; {otherwise}") from None
    if after == before:
        return [f"{path} has it already."]
    try:
        kept = [] if before is None else _keep(path)
        _replace(path, before, data, is_private=is_private)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be written: {exc.strerror or exc}") from None
    return [f"Wrote {path}.", *kept]


def _keep(path: Path) -> list[str]:
    """Keep what is in the file beside it, unless that was done before; in words."""
    backup = path.with_name(path.name + BACKUP)
    try:
        descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        return []
    with os.fdopen(descriptor, "wb") as file:
        file.write(path.read_bytes())
    backup.chmod(path.stat().st_mode & 0o777)
    return [f"What it was is in {backup}."]


def _replace(path: Path, before: str | None, after: bytes, *, is_private: bool) -> None:
    """Whoever reads the file meanwhile sees it as it was or as it is then."""
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
            if not is_private:
                new.chmod(was.st_mode & 0o777)
            if hasattr(os, "chown"):
                with suppress(PermissionError):
                    os.chown(new, was.st_uid, was.st_gid)
        if text_of(target) != before:
            raise ConfigurationError(f"{path} was changed by somebody else meanwhile; try again")
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
