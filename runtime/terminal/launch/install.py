"""What a client's own configuration is to have, written where the client looks for it. The user has asked for it."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.launch.agent import Installed

BACKUP = ".before-tenuto"


def install(home: Path, made: Installed) -> list[str]:
    """Write it; what was done, in words. What was in the file before is kept beside it, the first time.

    Raises:
        ConfigurationError: the file is not JSON that can be merged with, or cannot be written.
    """
    path = home / made.path
    try:
        before = path.read_text() if path.exists() else None
        after = made.text if made.merged is None else _merged(path, before, made.merged)
        assert after is not None
        if after == before:
            return [f"{path} has it already."]
        path.parent.mkdir(parents=True, exist_ok=True)
        told = [f"Wrote {path}."]
        backup = path.with_name(path.name + BACKUP)
        if before is not None and not backup.exists():
            shutil.copy(path, backup)
            told.append(f"What it was is in {backup}.")
        _replace(path, after)
        return told
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be written: {exc}") from exc


def _replace(path: Path, text: str) -> None:
    """Whoever reads the file meanwhile sees it as it was or as it is then. A link stays one."""
    whole = path.resolve()
    new = whole.with_name(f"{whole.name}.{os.getpid()}.new")
    try:
        new.write_text(text)
        if whole.exists():
            shutil.copymode(whole, new)
        new.replace(whole)
    finally:
        new.unlink(missing_ok=True)


def _merged(path: Path, before: str | None, new: Mapping[str, object]) -> str:
    try:
        there = json.loads(before) if before and before.strip() else {}
    except ValueError as exc:
        raise ConfigurationError(f"{path} is not plain JSON ({exc}); add by hand: {json.dumps(new)}") from exc
    if not isinstance(there, dict):
        raise ConfigurationError(f"{path} is not a JSON object; add by hand: {json.dumps(new)}")
    return json.dumps(_joined(there, new), indent=2, ensure_ascii=False) + "\n"


def _joined(there: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The new members in those that are there, objects within objects."""
    both = {name: _joined(there[name], new[name]) for name in new if _are_objects(there.get(name), new[name])}
    return {**there, **new, **both}


def _are_objects(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)
