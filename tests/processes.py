"""What processes there are. On Linux alone."""

from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that are there. Its threads come and go meanwhile."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(id) for id in (task / "children").read_text().split()]
    return found
