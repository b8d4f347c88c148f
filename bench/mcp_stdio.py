"""How long `tenuto mcp` takes from its start to its first answers, beside a bare server of the MCP SDK: medians.

The server that owns the data folder runs already, as it does for all but a client's very first start. Starts of the two
alternate, in both eras of the protocol.

    python bench/mcp_stdio.py
    python bench/mcp_stdio.py --rounds 40
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Literal

import anyio
from mcp import Client, StdioServerParameters

BARE = """
import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
import mcp.types as t

async def list_tools(context, params):
    return t.ListToolsResult(tools=[t.Tool(name="echo", input_schema={"type": "object"})])

async def main():
    server = Server("bare", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""
ERAS: tuple[Literal["legacy", "auto"], ...] = ("legacy", "auto")


async def started(target: StdioServerParameters, mode: Literal["legacy", "auto"]) -> tuple[float, float]:
    """Milliseconds until it has shaken hands, and until it has listed its tools."""
    began = time.monotonic()
    async with Client(target, mode=mode, cache=None) as client:
        met = time.monotonic()
        await client.list_tools()
        return 1000 * (met - began), 1000 * (time.monotonic() - began)


async def measure(proxy: StdioServerParameters, bare: StdioServerParameters, rounds: int) -> None:
    """Print a line for each era."""
    for mode in ERAS:
        took: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for round in range(rounds + 1):
            for name, target in (("bare", bare), ("tenuto mcp", proxy)):
                figures = await started(target, mode)
                if round:  # the first start reads files that the others find in memory
                    took[name].append(figures)
        for place, what in enumerate(("handshake", "tools listed")):
            ours, theirs = (statistics.median(each[place] for each in took[name]) for name in ("tenuto mcp", "bare"))
            print(f"{mode:7} {what:13} bare {theirs:5.0f} ms  tenuto mcp {ours:5.0f} ms  ratio {ours / theirs:.2f}")


def main() -> None:
    """Start the owner, and both many times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "bare.py")
        script.write_text(BARE)
        data = ("--data-dir", str(Path(folder, "data")))
        serve = [sys.executable, "-m", "tenuto", "serve", "--port", "0", *data]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline().startswith("tenuto ready")
            proxy = StdioServerParameters(command=sys.executable, args=["-m", "tenuto", "mcp", *data])
            bare = StdioServerParameters(command=sys.executable, args=[str(script)])
            try:
                anyio.run(measure, proxy, bare, rounds)
            finally:
                owner.terminate()


if __name__ == "__main__":
    main()
