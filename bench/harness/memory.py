"""The memory of a server and of the processes that it has started, over time."""

import asyncio
import re
import statistics
import time
from pathlib import Path
from typing import Any

from harness.servers import Running


class Memory:
    """Samples of what each process has in memory of its own, without what it shares with files."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._samples: dict[int, list[tuple[float, float]]] = {}

    async def watch(self, every_s: float) -> None:
        """Until it is cancelled."""
        while True:
            for process in self._server.tree():
                if (mib := resident_mib(process)) > 0:
                    self._samples.setdefault(process, []).append((time.monotonic(), mib))
            await asyncio.sleep(every_s)

    def told(self) -> dict[str, dict[str, Any]]:
        """By process, but for those that were there for less than half of the time: first, last and most MiB, and the
        growth over the second half by its slope."""
        longest = max(len(samples) for samples in self._samples.values())
        found: dict[str, dict[str, Any]] = {}
        for process, samples in self._samples.items():
            if len(samples) > longest / 2:
                mib = [each for _, each in samples]
                name = "server" if process == self._server.process else f"process {len(found)}"
                growth = round(slope_growth(samples[len(samples) // 2 :]), 2)
                found[name] = {"first": mib[0], "last": mib[-1], "most": max(mib), "growth_mib": growth}
        return found


def slope_growth(samples: list[tuple[float, float]]) -> float:
    """By how much a line through the samples rises from the first to the last."""
    if len(samples) < 3:
        return 0.0
    times, values = zip(*samples, strict=True)
    slope: float = statistics.linear_regression(times, values).slope
    rise: float = slope * (times[-1] - times[0])
    return rise


def resident_mib(process: int) -> float:
    """What a process has of its own; 0 where it has ended."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    return sum(int(found) for found in re.findall(r"^RssAnon:\s+(\d+) kB", text, re.MULTILINE)) / 1024
