"""The client that the suite tests: Tenuto's own host with one server, driven as runs drive it.

What a person would do is done here: log in where the server's state asks for that (in a browser that consents at once),
and fill in forms. The suite names the server as the last argument, and the scenario in the environment.
"""

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2

from tenuto.errors import TenutoError
from tenuto.sessions.questions import Question
from tenuto.tools.asking import Action, Reply
from tenuto.tools.forms import with_defaults
from tenuto.tools.host.host import Host
from tenuto.tools.host.login import login
from tenuto.tools.host.oauth_flow import LoginFailed
from tenuto.tools.host.server import McpServer
from tenuto.tools.host.state import Failure, Status
from tenuto.tools.mcp_config import HttpTarget, ServerConfig, kept_in, parse_mcp_config
from tenuto.tools.spec import CallContext, ToolResult

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ERA = "auto" if os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "") >= "2026" else "legacy"
MOST_LOGINS = 3
"""After so many a person gives up."""
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
STANDS_FOR = {"string": "x", "number": 1, "integer": 1, "boolean": True}


def entry(url: str) -> dict[str, Any]:
    """The server as a user would write it."""
    oauth: dict[str, Any] = {"client_metadata_url": CLIENT_METADATA}
    if "client_id" in CONTEXT:
        oauth = {key: CONTEXT[key] for key in ("client_id", "client_secret", "issuer") if key in CONTEXT}
    return {"url": url, "type": "http", "era": ERA, "start_timeout_s": 20, "timeout_s": 20, "oauth": oauth}


class Person:
    """Whoever sits before the host."""

    def __init__(self, config: ServerConfig, group: anyio.abc.TaskGroup) -> None:
        self._config, self._group = config, group
        self._logins = 0

    async def log_in(self) -> bool:
        """As `tenuto mcp login` does; whether there was a point in it."""
        self._logins += 1
        target = self._config.target
        assert isinstance(target, HttpTarget)
        assert target.oauth is not None
        if self._logins > MOST_LOGINS:
            return False
        try:
            await login(target.url, target.oauth, lambda url: self._group.start_soon(browse, url), wait_s=10)
        except LoginFailed as exc:
            print(f"the login failed: {exc}", file=sys.stderr)
            return False
        return True

    async def answer(self, question: Question) -> Reply:
        """Take what the form offers, and say yes to all else."""
        schema = question.schema or {}
        yes = {name: True for name, field in schema.get("properties", {}).items() if field.get("type") == "boolean"}
        return Reply(Action.ACCEPT, with_defaults(schema, {} if with_defaults(schema, {}) else yes))


async def browse(url: str) -> None:
    """A browser whose user has a session at the authorization server."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=10) as http:
        await http.get(url)


def calls(tools: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """What the scenario wants called, or else every tool with any arguments."""
    if SCENARIO == "json-schema-2020-12-preservation":
        return [("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]})]
    if "toolCalls" in CONTEXT:
        return [(call["name"], call.get("arguments") or {}) for call in CONTEXT["toolCalls"]]
    return [(name, arguments(schema)) for name, schema in tools.items()]


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Something for each argument that must be given."""
    fields = schema.get("properties", {})
    return {name: STANDS_FOR.get(fields.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


async def ready(server: McpServer, moved: Callable[[], anyio.Event], person: Person) -> bool:
    """Wait until the server is there, and log in where that is what it waits for."""
    while server.state.status is not Status.READY:
        event = moved()
        if server.state.failure is Failure.LOGIN_REQUIRED and server.state.status is Status.WAITING:
            if not await person.log_in():
                return False
        elif server.state.status is Status.WAITING:
            print(f"the server is {server.state.status}: {server.state.reason}", file=sys.stderr)
        await event.wait()
    return True


async def call(server: McpServer, person: Person, name: str, given: dict[str, Any]) -> ToolResult:
    """One call, as a run would make it."""
    return await server.call(name, given, CallContext("suite", None, None, "call", ask=person.answer))


async def main(url: str) -> None:
    """Connect, list, and call."""
    text = json.dumps({"mcpServers": {"suite": entry(url)}})
    moved = anyio.Event()

    def on_change() -> None:
        nonlocal moved
        before, moved = moved, anyio.Event()
        before.set()

    with tempfile.TemporaryDirectory() as folder:
        configs = kept_in(parse_mcp_config(text, "suite"), Path(folder))
        async with anyio.create_task_group() as group, Host(configs, on_change) as host:
            [server] = host.servers
            person = Person(server.config, group)
            if await ready(server, lambda: moved, person):
                tools = {tool.spec.name: tool.spec.parameters for tool in await server.list()}
                for name, given in calls(tools):
                    try:
                        print(name, (await call(server, person, name, given)).text[:200], file=sys.stderr)
                    except TenutoError as exc:
                        print(name, f"failed: {exc}", file=sys.stderr)
                        if server.state.failure is Failure.LOGIN_REQUIRED and await ready(server, lambda: moved, person):
                            await call(server, person, name, given)
            group.cancel_scope.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    anyio.run(main, sys.argv[-1])
