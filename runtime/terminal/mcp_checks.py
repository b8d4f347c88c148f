"""What the doctor sees of MCP servers: as the running server tells, or by connecting to each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.schema.mcp_servers import server_answer
from tenuto.runtime.terminal.client import Refused, Remote, is_missing
from tenuto.runtime.terminal.report import Section
from tenuto.tools.host import Failure, Host, Status
from tenuto.tools.host.server import McpServer
from tenuto.tools.mcp_config import ServerConfig, StdioTarget, kept_in, read_mcp_config

SETTLE_S = 30.0
STDERR_LINES = 10

_ADVICE = {
    Failure.NO_PROGRAM: "install {command}, or correct `command`",
    Failure.NOT_EXECUTABLE: "make {command} executable for this user",
    Failure.UNAUTHORIZED: "correct the token in `headers` or `env`",
    Failure.LOGIN_REQUIRED: "run the command that it names, with the same --mcp-config",
    Failure.NO_ENDPOINT: "correct `url`: it must be the server's MCP endpoint, often ending in /mcp or /sse",
    Failure.UNREACHABLE: "start that server, or correct `url`",
    Failure.TIMED_OUT: "find out why it starts slowly, or raise `startTimeout`",
}


def served(remote: Remote) -> list[Section] | None:
    """The MCP servers of a running server; None where it does not tell."""
    try:
        found = remote.get("/v1/mcp/servers", stderr=STDERR_LINES)["data"]
    except Refused as exc:
        if is_missing(exc):
            return None
        raise
    return [_section(each, None) for each in found]


async def connected(path: Path, data_dir: Path) -> list[Section]:
    """The MCP servers of a file, each started or connected to for the question, and ended again."""
    try:
        configs = kept_in(read_mcp_config(path), data_dir)
    except ConfigurationError as exc:
        section = Section("MCP configuration", {"file": str(path)})
        section.wrong(str(exc), "correct the file: it must hold the `mcpServers` object that other MCP clients read")
        return [section]
    async with Host(configs) as host:
        await host.settled(SETTLE_S)
        return [_section(await _facts(server), server.config) for server in host.servers]


async def _facts(server: McpServer) -> dict[str, Any]:
    tools = [tool.spec.name for tool in await server.list()]
    return server_answer(server.state, tools, server.stderr[-STDERR_LINES:]).model_dump(mode="json")


def _section(facts: Mapping[str, Any], config: ServerConfig | None) -> Section:
    section = Section(f"MCP server {facts['id']}")
    section.facts["state"] = facts["status"]
    section.facts["transport"] = facts["transport"]
    if facts["status"] == Status.READY:
        section.facts["protocol"] = f"{facts['protocol']} ({facts['era']})"
    if facts["status"] in (Status.READY, Status.WAITING, Status.STARTING):
        section.facts["tools"] = _tools(facts["tools"])
    if facts["restarts"]:
        section.facts["restarts"] = facts["restarts"]
    if facts["status"] in (Status.WAITING, Status.STARTING, Status.STOPPED):
        reason = facts["reason"] or f"it was not ready within {SETTLE_S:g} s"
        section.wrong(reason, remedy(_failure(facts), facts["stderr"], config))
        section.lines = list(facts["stderr"])
    elif facts["failure"]:
        section.wrong(facts["reason"], remedy(_failure(facts), facts["stderr"], config), broken=False)
    elif facts["last_error"]:
        section.wrong(
            f"it failed before: {facts['last_error']}", "check the server's own log if this happens often", broken=False
        )
        section.lines = list(facts["stderr"])
    return section


def remedy(failure: Failure, stderr: Sequence[str], config: ServerConfig | None) -> str:
    """What to do about a server that does not come up, from what is known."""
    target = None if config is None else config.target
    command = f"`{target.command}`" if isinstance(target, StdioTarget) else "its command"
    advice = _missing_package(stderr, command) or _ADVICE.get(failure, "").format(command=command)
    if advice:
        return f"{advice} in the MCP configuration" if "`" in advice and config is None else advice
    if stderr:
        return f"see its last lines above; run {command} by hand to see more"
    return f"run {command} by hand with the same arguments to see what it says"


def _missing_package(stderr: Sequence[str], command: str) -> str:
    """What interpreters write when the program that they are to run is not installed; nothing else tells of it."""
    said = "\n".join(stderr)
    if "No module named" in said:
        return f"install the missing Python module where {command} runs"
    if "Cannot find module" in said or "npm ERR" in said or "npm error" in said:
        return "install the npm package that `args` names, or correct its name"
    return ""


def _failure(facts: Mapping[str, Any]) -> Failure:
    """As the server tells; one that is still starting is late, and one of another version may know other kinds."""
    if facts["status"] == Status.STARTING:
        return Failure.TIMED_OUT
    told = facts.get("failure")
    return Failure(told) if told in set(Failure) else Failure.OTHER


def _tools(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{len(names)}{f': {shown}{more}' if names else ''}"
