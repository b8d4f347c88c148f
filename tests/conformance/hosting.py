"""The client that the suite tests: Tenuto's own host with one server, driven as runs drive it.

What a person would do is done here: log in where the server's state asks for that (in a browser that consents at once),
and fill in forms. The suite starts a relay for each scenario, which tells the scenario here and waits until it is done.
"""

import json
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import anyio
import httpx2
from anyio.abc import SocketAttribute, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from tenuto.errors import TenutoError
from tenuto.sessions.questions import Question
from tenuto.tools.asking import Action, Reply
from tenuto.tools.forms import with_defaults
from tenuto.tools.host.host import Host
from tenuto.tools.host.login import login
from tenuto.tools.host.oauth_fetch import LoginFailed
from tenuto.tools.host.server import McpServer
from tenuto.tools.host.state import Failure, ServerState, Status
from tenuto.tools.mcp_config import HttpTarget, ServerConfig, kept_in, parse_mcp_config
from tenuto.tools.spec import CallContext
from tests.patience import HANGS_S

AT_ONCE = 4
"""Scenarios. The suite begins all of a set at once; what it measures counts from when the client comes."""
GIVE_UP_S = 2 * HANGS_S
"""Of one scenario, before the suite gives up, so that what was said tells why."""
MOST_LOGINS, MOST_FAILURES = 3, 5
"""After so many a person gives up."""
MOST_TOLD = 1 << 20
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
CLIENT_CREDENTIALS = ("auth/client-credentials-basic", "auth/client-credentials-jwt")
ENTERPRISE_MANAGED = "auth/enterprise-managed-authorization"
STANDS_FOR = {"string": "x", "number": 1, "integer": 1, "boolean": True}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """One scenario. `context` is what the suite gives to the client, as a client id that was registered before."""

    url: str
    scenario: str
    version: str
    context: dict[str, Any]
    issuer: str = ""

    @classmethod
    async def of(cls, told: dict[str, str]) -> Self:
        """What a relay tells: a URL, and what the suite has put into its environment."""
        context = json.loads(told.get("MCP_CONFORMANCE_CONTEXT") or "{}")
        version = told.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
        order = cls(told["url"], told.get("MCP_CONFORMANCE_SCENARIO", ""), version, context)
        return await order.with_issuer() if order.scenario in (*CLIENT_CREDENTIALS, ENTERPRISE_MANAGED) else order

    async def with_issuer(self) -> Self:
        """With the authorization server that the server names. Its user knows it: they have the secret from there."""
        at = httpx2.URL(self.url).copy_with(path="/.well-known/oauth-protected-resource/mcp")
        async with httpx2.AsyncClient(timeout=HANGS_S) as http:
            told = (await http.get(at)).json()
        return replace(self, issuer=told["authorization_servers"][0])

    @property
    def entry(self) -> dict[str, Any]:
        """The server as a user would write it."""
        oauth: dict[str, Any] = {"client_metadata_url": CLIENT_METADATA}
        if "client_id" in self.context:
            oauth = {key: self.context[key] for key in ("client_id", "client_secret", "issuer") if key in self.context}
        if self.scenario in CLIENT_CREDENTIALS:
            oauth = {**oauth, "grant": "client_credentials", "issuer": self.issuer}
        if self.scenario == ENTERPRISE_MANAGED:
            idp = {key: self.context[f"idp_{key}"] for key in ("issuer", "client_id", "id_token")}
            oauth = {**oauth, "grant": "enterprise_managed", "issuer": self.issuer, "idp": idp}
        if "private_key_pem" in self.context:
            oauth = {**oauth, "private_key": self.context["private_key_pem"]}
        era = "auto" if self.version >= "2026" else "legacy"
        limits = {"start_timeout_s": HANGS_S, "timeout_s": HANGS_S}
        return {"url": self.url, "type": "http", "era": era, "oauth": oauth, **limits}

    def calls(self, tools: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
        """What the scenario wants called, or else every tool with any arguments."""
        if self.scenario == "json-schema-2020-12-preservation":
            return [("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]})]
        if "toolCalls" in self.context:
            return [(call["name"], call.get("arguments") or {}) for call in self.context["toolCalls"]]
        return [(name, arguments(schema)) for name, schema in tools.items()]


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Something for each argument that must be given."""
    fields = schema.get("properties", {})
    return {name: STANDS_FOR.get(fields.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


class Person:
    """Whoever sits before the host."""

    def __init__(self, config: ServerConfig, group: TaskGroup, say: Say) -> None:
        self._config, self._group, self._say = config, group, say
        self._logins = 0

    async def can_help(self, state: ServerState) -> bool:
        """Do what there is to do about a server that waits; whether it is worth to wait for it."""
        return await self.log_in() if state.failure is Failure.LOGIN_REQUIRED else state.restarts <= MOST_FAILURES

    async def log_in(self) -> bool:
        """As `tenuto mcp login` does; whether there was a point in it."""
        self._logins += 1
        target = self._config.target
        assert isinstance(target, HttpTarget)
        assert target.oauth is not None
        if self._logins > MOST_LOGINS:
            return False

        def show(url: str) -> None:
            self._group.start_soon(browse, url)

        try:
            await login(target.url, target.oauth, show, wait_s=HANGS_S)
        except LoginFailed as exc:
            self._say(f"the login failed: {exc}")
            return False
        return True

    async def answer(self, question: Question) -> Reply:
        """Take what the form offers, and say yes to all else."""
        schema = question.schema or {}
        yes = {name: True for name, field in schema.get("properties", {}).items() if field.get("type") == "boolean"}
        return Reply(Action.ACCEPT, with_defaults(schema, {} if with_defaults(schema, {}) else yes))


async def browse(url: str) -> None:
    """A browser whose user has a session at the authorization server."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=HANGS_S) as http:
        await http.get(url)


async def ready(server: McpServer, moved: Callable[[], anyio.Event], person: Person, say: Say) -> bool:
    """Wait until the server is there, and log in where that is what it waits for."""
    while (state := server.state).status is not Status.READY:
        if state.status is Status.WAITING:
            say(f"the server is waiting: {state.reason}")
            if not await person.can_help(state):
                return False
        event = moved()
        if server.state.status is state.status:
            await event.wait()
    return True


async def call(server: McpServer, person: Person, say: Say, name: str, given: dict[str, Any]) -> None:
    """One call, as a run would make it; once more after each login that it needs."""
    context = CallContext("suite", None, None, "call", ask=person.answer)
    while True:
        try:
            result = await server.call(name, given, context)
        except TenutoError as exc:
            say(f"{name} failed: {exc}")
            if server.state.failure is Failure.LOGIN_REQUIRED and await person.log_in():
                continue
        else:
            say(f"{name}: {result.text[:200]}")
        return


async def drive(order: Order, say: Say) -> None:
    """Connect, list, and call."""
    moved = anyio.Event()

    def on_change() -> None:
        nonlocal moved
        before, moved = moved, anyio.Event()
        before.set()

    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps({"mcpServers": {"suite": order.entry}})
        configs = kept_in(parse_mcp_config(text, "suite"), Path(folder))
        async with anyio.create_task_group() as group, Host(configs, on_change) as host:
            group.cancel_scope.deadline = anyio.current_time() + GIVE_UP_S
            [server] = host.servers
            person = Person(server.config, group, say)
            if await ready(server, lambda: moved, person, say):
                tools = {tool.spec.name: tool.spec.parameters for tool in await server.list()}
                for name, given in order.calls(tools):
                    await call(server, person, say, name, given)
            group.cancel_scope.cancel()


@asynccontextmanager
async def hosting() -> AsyncGenerator[int, None]:
    """Listen for relays, on the port that this gives."""
    places = anyio.CapacityLimiter(AT_ONCE)

    async def serve(stream: SocketStream) -> None:
        """Do what one relay tells."""
        async with stream:
            head = await BufferedByteReceiveStream(stream).receive_until(b"\n\n", MOST_TOLD)
            lines = (line.partition("=") for line in head.decode().split())
            told = {name: bytes.fromhex(value).decode() for name, _, value in lines}
            said: list[str] = []
            async with places:
                await drive(await Order.of(told), said.append)
            await stream.send("".join(f"{line}\n" for line in said).encode())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()
