"""Paths as users write them."""

from pathlib import Path


def expanded(path: str | Path) -> Path:
    """The path with `~` replaced. Raises ValueError where it begins with the home of somebody who is not here."""
    path = Path(path)
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"there is no home folder for {path.parts[0]!r}") from None
