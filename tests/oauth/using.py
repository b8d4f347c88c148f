"""Calls the tool of a server with a login, beside others that do: `python -m tests.oauth.using FILE DIR`."""

import sys
from pathlib import Path

import anyio

from tenuto.tools.host import Host
from tenuto.tools.mcp_config import kept_in, read_mcp_config
from tenuto.tools.spec import CallContext


async def main(*given: str) -> None:
    file, data_dir = given
    async with Host(kept_in(read_mcp_config(Path(file)), Path(data_dir))) as host:
        await host.settled(60)
        result = await host.servers[0].call("secret", {}, CallContext("ada", "session", "run", "call"))
        print(result.text)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
