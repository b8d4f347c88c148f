"""Busy processes beside a server: programs that only compute."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

BURN = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"
SETTLE_S = 0.5


@contextmanager
def busy(count: int, most_s: float = 600.0) -> Iterator[None]:
    """So many of them. They end with the block, and in any case after some seconds."""
    with ExitStack() as stack:
        for _ in range(count):
            burner = stack.enter_context(subprocess.Popen([sys.executable, "-c", BURN, str(most_s)]))
            stack.callback(burner.kill)
        if count:
            time.sleep(SETTLE_S)
        yield
