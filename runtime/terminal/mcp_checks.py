"""What the doctor sees of MCP servers: as the running server tells, or by connecting to each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.client import Refused, Remote, is_missing
from tenuto.runtime.terminal.report import Section
from tenuto.tools.host import Host
from tenuto.tools.host.server import McpServer
from tenuto.tools.mcp_config import ServerConfig, StdioTarget, read_mcp_config

SETTLE_S = 30.0
STDERR_LINES = 10


def served(remote: Remote) -> list[Section] | None:
    """The MCP servers of a running server; None where it does not tell."""
    try:
        found = remote.get("/v1/mcp/servers", stderr=STDERR_LINES)["data"]
    except Refused as exc:
        if is_missing(exc):
            return None
        raise
    return [_section(each, None) for each in found]


async def connected(path: Path) -> list[Section]:
    """The MCP servers of a file, each started or connected to for the question, and ended again."""
    try:
        configs = read_mcp_config(path)
    except ConfigurationError as exc:
        section = Section("MCP configuration", {"file": str(path)})
        section.wrong(str(exc), "correct the file: it is the `mcpServers` object that other MCP clients read")
        return [section]
    async with Host(configs) as host:
        await host.settled(SETTLE_S)
        return [_section(await _facts(server), server.config) for server in host.servers]


async def _facts(server: McpServer) -> dict[str, Any]:
    state = server.state
    return {
        "id": state.name,
        "status": state.status.value,
        "reason": state.reason or None,
        "transport": state.transport,
        "protocol": state.protocol,
        "era": state.era,
        "tools": [tool.spec.name for tool in await server.list()],
        "restarts": state.restarts,
        "last_error": state.last_error or None,
        "stderr": list(server.stderr[-STDERR_LINES:]),
    }


def _section(facts: Mapping[str, Any], config: ServerConfig | None) -> Section:
    section = Section(f"MCP server {facts['id']}")
    section.facts["state"] = facts["status"]
    section.facts["transport"] = facts["transport"]
    if facts["status"] == "ready":
        section.facts["protocol"] = f"{facts['protocol']} ({facts['era']})"
    if facts["status"] in ("ready", "waiting", "starting"):
        section.facts["tools"] = _tools(facts["tools"])
    if facts["restarts"]:
        section.facts["restarts"] = facts["restarts"]
    if facts["status"] in ("waiting", "starting", "stopped"):
        reason = facts["reason"] or f"it was not ready within {SETTLE_S:g} s"
        if "connection closed" in reason.lower():
            reason = f"it ended before it was ready ({reason})"
        section.wrong(reason, remedy(reason, facts["stderr"], config))
        section.lines = list(facts["stderr"])
    elif facts["last_error"]:
        section.wrong(f"it failed before: {facts['last_error']}", "see its own log if it happens often", broken=False)
        section.lines = list(facts["stderr"])
    return section


def remedy(reason: str, stderr: Sequence[str], config: ServerConfig | None) -> str:
    """What to do about a server that does not come up, from what is known."""
    said = f"{reason}\n" + "\n".join(stderr)
    lower = said.lower()
    target = None if config is None else config.target
    command = f"`{target.command}`" if isinstance(target, StdioTarget) else "its command"
    cases = (
        (("no such file", "not found on", "cannot be started", "enoent"), f"install {command}, or correct `command`"),
        (("modulenotfounderror", "no module named"), f"install the missing Python module where {command} runs"),
        (("cannot find module", "npm err"), "install the npm package that `args` names, or correct its name"),
        (("permission denied",), f"make {command} executable for this user"),
        (("401", "403", "unauthorized", "forbidden"), "correct the token in `headers` or `env`"),
        (("404", "405"), "correct `url`: it must be the server's MCP endpoint, often ending in /mcp or /sse"),
        (
            ("connection refused", "connect to", "connection attempts failed", "name or service"),
            "start that server, or correct `url`",
        ),
        (("not ready within", "timed out", "timeout"), "see why it starts slowly, or give it more `startTimeout`"),
    )
    for signs, advice in cases:
        if any(sign in lower for sign in signs):
            return f"{advice} in the MCP configuration" if "`" in advice and config is None else advice
    if stderr:
        return f"its last lines above say why; run {command} by hand to see more"
    return f"run {command} by hand with the same arguments and see what it says"


def _tools(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{len(names)}{f': {shown}{more}' if names else ''}"
