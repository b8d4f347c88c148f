"""One server behind ours in four ways: on stdio and over HTTP, in both eras. By itself that of `attaching`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.forked import tool_server
from tests.mcp import attaching

WAYS = ("stdio-legacy", "stdio-modern", "http-legacy", "http-modern")


@contextmanager
def ways(script: Path = Path(attaching.__file__), **more: Any) -> Iterator[dict[str, dict[str, Any]]]:
    """The entries of the configuration, while the server over HTTP runs."""
    process = subprocess.Popen([sys.executable, str(script), "http"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        over: dict[str, dict[str, Any]] = {"stdio": tool_server(script), "http": {"url": url}}
        yield {
            way: {**over[transport], "era": era, "permission": "auto", **more}
            for way in WAYS
            for transport, era in [way.split("-")]
        }
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
