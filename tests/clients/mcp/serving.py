"""The server that MCP clients are driven against: a scripted model, a tool that needs a person's word, a prompt."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.forked import program
from tests.e2e.server import Server, environment, script

ROOT = Path(__file__).parents[3]
MANY = ROOT / "tests" / "tools" / "servers" / "many.py"
DRIVERS = Path(__file__).parent / "drivers"
RUN_S = 300
ERAS = ("legacy", "auto")
TRANSPORTS = ("http", "stdio")

RULES: list[dict[str, Any]] = [
    {"user": "hello", "text": "Hello, Ann."},
    {"user": "slowly", "text": "word " * 60 + "end", "delay_ms": 5},
    {"user": "at length", "text": "word " * 20_000, "delay_ms": 5},
    {"user": "echo", "calls": [{"name": "many__echo", "arguments": {"text": "hi"}}]},
    {"tool": "hi", "text": "It said hi."},
    {"tool_contains": "denied", "text": "I may not."},
]


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Start it in a folder of its own."""
    entry = {"command": sys.executable, "args": [str(MANY)], "permission": "ask"}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"many": entry}}))
    (folder / "prompts").mkdir()
    documented = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "mcp.md").read_text(), re.DOTALL)
    (folder / "prompts" / "review.toml").write_text(documented[0])
    options = ("--mcp-config", str(folder / "mcp.json"), "--prompts", str(folder / "prompts"))
    server = Server(folder, script(folder / "model.json", RULES, cells=1 << 18), options)
    try:
        yield server.start()
    finally:
        server.close()


def target(server: Server, transport: str, **more: str) -> dict[str, Any]:
    """Where a client finds it."""
    if transport == "http":
        return {"url": f"{server.url}/mcp", **more}
    command, *arguments = program("mcp", "--data-dir", str(server.data_dir))
    return {"command": command, "args": arguments, "env": environment(server.folder), **more}


def printed(command: Sequence[str], variables: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Run a client to its end: what it printed. It has this process's environment, unless it is given one."""
    done = subprocess.run(
        [*command],
        env={**os.environ, "PYTHONPATH": ""} if variables is None else {**variables},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
