"""An MCP server that wants a token, as a small program: the SDK's, with its own guard, for the test's issuer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
import mcp.types as t
from mcp import MCPError
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from tests.oauth.authority import KEY, Authority, listening


@dataclass
class Guarded:
    """`accepted` are headers that open it besides the issuer's tokens; `stale` are tokens that it takes no more. The
    methods that are `open` need no token, and the tools of `needed_for` other scopes than all else."""

    authority: Authority
    url: str = ""
    needed: str = "tenuto:run"
    needed_for: dict[str, str] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    knows_handshake: bool = True
    accepted: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)
    calls: int = 0

    def refusal(self, authorization: str, message: dict[str, Any]) -> tuple[int, str] | None:
        if authorization in self.accepted or message.get("method") in self.open:
            return None
        needed = self.needed_for.get(message.get("params", {}).get("name"), self.needed)
        place = f'resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
        token = authorization.removeprefix("Bearer ")
        try:
            assert token not in self.stale
            claims = jwt.decode(
                token, KEY.public_key(), ["RS256"], audience=f"{self.url}/mcp", issuer=self.authority.url
            )
        except (jwt.PyJWTError, AssertionError):
            return 401, f"Bearer {place}"
        if not set(needed.split()) <= set(claims["scope"].split()):
            return 403, f'Bearer error="insufficient_scope", scope="{needed}", {place}'
        return None


async def _list(context: Any, params: Any) -> t.ListToolsResult:
    names = ("secret", "other")
    return t.ListToolsResult(
        tools=[t.Tool(name=name, description="a secret", input_schema={"type": "object"}) for name in names]
    )


def again(body: bytes, receive: Receive) -> Receive:
    """The request once more, whose body has been read."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def given() -> Message:
        return first.pop() if first else await receive()

    return given


@contextmanager
def guarded(authority: Authority) -> Iterator[Guarded]:
    one = Guarded(authority)

    async def call(context: Any, params: Any) -> t.CallToolResult:
        one.calls += 1
        if params.name == "echo_key":  # as servers do that say which key is a bad one
            raise MCPError(code=t.INVALID_PARAMS, message=f"the key {one.seen[-1]} is not for this")
        return t.CallToolResult(content=[t.TextContent(type="text", text="42")])

    server: Server[Any] = Server("guarded", version="1", on_list_tools=_list, on_call_tool=call)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.url.path.startswith("/.well-known/oauth-protected-resource"):
            found = {"resource": f"{one.url}/mcp", "authorization_servers": [one.authority.url]}
            await JSONResponse(found)(scope, receive, send)
            return
        if request.url.path != "/mcp":
            await JSONResponse({}, 404)(scope, receive, send)
            return
        one.seen.append(request.headers.get("authorization", ""))
        body = await request.body()
        message = json.loads(body) if body else {}
        if message.get("method") == "initialize" and not one.knows_handshake:
            await JSONResponse({"error": "no MCP-Protocol-Version"}, 400)(scope, receive, send)
            return
        refusal = one.refusal(one.seen[-1], message)
        if refusal is not None:
            await JSONResponse({"error": "no"}, refusal[0], {"www-authenticate": refusal[1]})(scope, receive, send)
            return
        manager = StreamableHTTPSessionManager(server, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, again(body, receive), send)

    def made(url: str) -> Any:
        one.url = url
        return app

    with listening(made):
        yield one
