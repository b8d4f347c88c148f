"""Waits on a virtual machine, whose host takes time from it in which no code of ours can have run."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_STAT = Path("/proc/stat")
_STOLEN = 8
"""The column: https://man7.org/linux/man-pages/man5/proc_stat.5.html"""


def _stolen() -> tuple[float, ...]:
    """What each core has lost so far, in seconds; nothing where that is unknown, or the machine is no virtual one."""
    if not _STAT.exists():
        return ()
    lines = [line.split() for line in _STAT.read_text().splitlines() if line.startswith("cpu") and line[3].isdigit()]
    return tuple(int(line[_STOLEN]) / os.sysconf("SC_CLK_TCK") for line in lines)


@dataclass(frozen=True)
class Stopwatch:
    """Measures a wait, in seconds, from when it was made."""

    begun: float = field(default_factory=time.monotonic)
    _before: tuple[float, ...] = field(default_factory=_stolen)

    def took(self) -> float:
        """All of the time since."""
        return time.monotonic() - self.begun

    def took_here(self) -> float:
        """The time since, without what the host took from the core that lost most."""
        took = self.took()
        return took - max((now - then for now, then in zip(_stolen(), self._before, strict=True)), default=0.0)
