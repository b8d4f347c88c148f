"""`tenuto` whose event loop, or a thread of it, gets stuck for good once the file `stuck` lies in its folder."""

import os
import re
import sys
import threading
import time

import anyio

from tenuto.__main__ import main
from tenuto.runtime.serve import Server

HOW, FLAG = sys.argv.pop(1), "stuck"
ticked = Server.on_tick


async def on_tick(self: Server, counter: int) -> bool:
    if os.access(FLAG, os.F_OK):
        os.unlink(FLAG)  # noqa: PTH108  (nothing else is done here than to get stuck)
        print("stuck", file=sys.stderr, flush=True)
        match HOW:
            case "pattern":
                re.match("^(a+)+$", "a" * 64 + "!")  # never comes back, and never gives up the interpreter's lock
            case "lock":
                held = threading.Lock()
                with held:
                    held.acquire()
            case "worker":
                await anyio.to_thread.run_sync(time.sleep, 3600)
            case "thread":
                threading.Thread(target=time.sleep, args=(3600,)).start()
    return await ticked(self, counter)


Server.on_tick = on_tick  # type: ignore[method-assign]
main()
