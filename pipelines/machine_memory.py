"""How much main memory is free for a model, on this machine and in this container. No backend."""

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_MOST_KEPT_BACK = 1 << 30
_VM_STAT_S = 10
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""What version 1 of cgroups has where nothing is limited is about twice that."""


def usable(free: int) -> int:
    """What of so many free bytes a model may be planned into: an eighth is kept back for others, 1 GiB at most."""
    return free - min(_MOST_KEPT_BACK, free // 8)


def free_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Bytes of main memory that can be had without swapping; None where the system does not tell."""
    if sys.platform == "linux":
        return min([*_of_linux(proc), *_of_cgroups(proc, cgroups)], default=None)
    if sys.platform == "darwin":
        return _of_macos()
    if sys.platform == "win32":
        return _of_windows()
    return None


def _of_linux(proc: Path) -> Iterator[int]:
    found = re.search(r"^MemAvailable: +(\d+) kB", _text(proc / "meminfo"), re.MULTILINE)
    if found:
        yield int(found[1]) << 10


def _of_cgroups(proc: Path, cgroups: Path) -> Iterator[int]:
    """What is free below each limit that this process is under, its own group's and those of the groups around it."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if number == "0":
            yield from _below(cgroups, place, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _below(cgroups / "memory", place, *names)


def _below(root: Path, place: str, limit_name: str, used_name: str, file_name: str) -> Iterator[int]:
    group = root / place.strip("/")
    # In a container its own group may be mounted as the root.
    groups = [group, *group.parents] if group.is_dir() else [root]
    for each in groups:
        limit, used = _text(each / limit_name).strip(), _text(each / used_name).strip()
        if limit.isdecimal() and used.isdecimal() and int(limit) < _NO_LIMIT:
            files = re.search(rf"^{file_name} (\d+)", _text(each / "memory.stat"), re.MULTILINE)
            yield max(0, int(limit) - int(used) + (int(files[1]) if files else 0))
        if each == root:
            return


def _of_macos() -> int | None:
    """Pages that are free, or that the system takes from others without writing them anywhere."""
    try:
        told = subprocess.run(["vm_stat"], capture_output=True, text=True, timeout=_VM_STAT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    size = re.search(r"page size of (\d+) bytes", told)
    pages = re.findall(r"^Pages (?:free|inactive|speculative|purgeable): +(\d+)\.", told, re.MULTILINE)
    return int(size[1]) * sum(map(int, pages)) if size and pages else None


class _WindowsMemory(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = [
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "free", "a", "b", "c", "d", "e")),
    ]


def _of_windows() -> int | None:
    status = _WindowsMemory(length=ctypes.sizeof(_WindowsMemory))
    library = getattr(ctypes, "windll", None)
    if library is None or not library.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.free)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
