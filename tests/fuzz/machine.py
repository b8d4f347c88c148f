"""What the host of a virtual machine has taken from it: time in which no code of ours can have run."""

import os
from pathlib import Path

_STAT = Path("/proc/stat")
_STOLEN = 8
"""The column: https://man7.org/linux/man-pages/man5/proc_stat.5.html"""


def stolen() -> tuple[float, ...]:
    """What each core has lost so far, in seconds; nothing where that is unknown, or the machine is no virtual one."""
    if not _STAT.exists():
        return ()
    lines = [line.split() for line in _STAT.read_text().splitlines() if line.startswith("cpu") and line[3].isdigit()]
    return tuple(int(line[_STOLEN]) / os.sysconf("SC_CLK_TCK") for line in lines)
