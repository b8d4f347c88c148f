"""An MCP server that wants a token, as a small program: the SDK's, with its own guard, for the test's issuer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
import mcp.types as t
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tests.oauth.authority import KEY, Authority, listening


@dataclass
class Guarded:
    """`accepted` are headers that open it besides the issuer's tokens; `stale` are tokens that it takes no more."""

    authority: Authority
    url: str = ""
    needed: str = "tenuto:run"
    accepted: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)
    calls: int = 0

    def refusal(self, authorization: str) -> tuple[int, str] | None:
        if authorization in self.accepted:
            return None
        place = f'resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
        token = authorization.removeprefix("Bearer ")
        try:
            assert token not in self.stale
            claims = jwt.decode(
                token, KEY.public_key(), ["RS256"], audience=f"{self.url}/mcp", issuer=self.authority.url
            )
        except (jwt.PyJWTError, AssertionError):
            return 401, f"Bearer {place}"
        if not set(self.needed.split()) <= set(claims["scope"].split()):
            return 403, f'Bearer error="insufficient_scope", scope="{self.needed}", {place}'
        return None


async def _list(context: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name="secret", description="a secret", input_schema={"type": "object"})])


@contextmanager
def guarded(authority: Authority) -> Iterator[Guarded]:
    one = Guarded(authority)

    async def call(context: Any, params: Any) -> t.CallToolResult:
        one.calls += 1
        return t.CallToolResult(content=[t.TextContent(type="text", text="42")])

    server: Server[Any] = Server("guarded", version="1", on_list_tools=_list, on_call_tool=call)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.url.path.startswith("/.well-known/oauth-protected-resource"):
            found = {"resource": f"{one.url}/mcp", "authorization_servers": [authority.url]}
            await JSONResponse(found)(scope, receive, send)
            return
        if request.url.path != "/mcp":
            await JSONResponse({}, 404)(scope, receive, send)
            return
        one.seen.append(request.headers.get("authorization", ""))
        refusal = one.refusal(one.seen[-1])
        if refusal is not None:
            await JSONResponse({"error": "no"}, refusal[0], {"www-authenticate": refusal[1]})(scope, receive, send)
            return
        manager = StreamableHTTPSessionManager(server, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def made(url: str) -> Any:
        one.url = url
        return app

    with listening(made):
        yield one
