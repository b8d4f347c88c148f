"""An entry of the `mcpServers` file as it is written: shapes only, no meaning."""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from tenuto.tools.approvals import Permission
from tenuto.tools.gateway import GatewayOrNot
from tenuto.tools.mcp_credentials import OAuthEntry
from tenuto.tools.mcp_sandbox import SandboxEntry
from tenuto.tools.sampling import Mode, SamplingEntry

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Calls = Annotated[int, Field(ge=1, le=1024)]
HttpKind = Literal["auto", "http", "sse"]
"""How a server is spoken to over HTTP: `auto` tries streamable HTTP first, and SSE where the server refuses that."""

Era = Literal["auto", "legacy", "modern"]
"""Which protocol: `legacy` is up to 2025-11-25, with a handshake, `modern` from 2026-07-28 on. `auto` finds out."""

Instance = Literal["shared", "session"]
"""Who uses one program or connection: all, or one session."""


class ToolEntry(BaseModel):
    """What an entry says of some of its tools."""

    model_config = ConfigDict(extra="forbid")

    permission: Permission | None = None
    timeout_s: Seconds | None = None
    max_concurrency: Calls | None = None


class RootEntry(BaseModel):
    """A folder for a server to work in, with a name of its own."""

    model_config = ConfigDict(extra="forbid")

    path: str
    name: str | None = None


RootEntries = list[str | RootEntry]


class Entry(BaseModel):
    """A server."""

    model_config = ConfigDict(extra="allow")

    command: str | None = Field(None, min_length=1)
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    sandbox: bool | SandboxEntry = False
    url: str | None = None
    headers: dict[str, str] = {}
    type: Literal["stdio", "http", "streamable-http", "streamableHttp", "streamable_http", "sse"] | None = None
    transport: Literal["stdio", "http", "streamable-http", "streamableHttp", "streamable_http", "sse"] | None = None
    oauth: OAuthEntry | Literal[False] | None = None
    headers_command: str | list[str] | None = Field(
        None, validation_alias=AliasChoices("headers_command", "headersCommand", "headersHelper")
    )
    bearer_command: str | list[str] | None = Field(
        None, validation_alias=AliasChoices("bearer_command", "bearerCommand")
    )
    permission: Permission | dict[str, Permission] | None = None
    timeout_s: Seconds = 120.0
    start_timeout_s: Seconds = 60.0
    max_concurrency: Calls = 8
    disabled: bool = False
    era: Era = "auto"
    instance: Instance = "shared"
    gateway: GatewayOrNot = True
    tools: dict[str, ToolEntry] = {}
    instructions: bool = True
    sampling: Mode | SamplingEntry = "off"
    roots: bool | RootEntries | None = None


class File(BaseModel):
    """The whole file; an entry is read by itself."""

    model_config = ConfigDict(extra="allow")

    mcp_servers: dict[str, dict[str, Any]] = Field(alias="mcpServers")
    roots: RootEntries = []
    """Those of servers whose entries say nothing of theirs."""
