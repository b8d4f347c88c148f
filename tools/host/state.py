"""Where an MCP server stands: plain facts for people and programs to read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Kind = Literal["stdio", "http", "sse"]


class Status(StrEnum):
    """Where a server stands."""

    DISABLED = "disabled"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    """Its last start or connection failed; it is tried again after a while."""
    STOPPED = "stopped"


class Failure(StrEnum):
    """Why a server is not ready, for programs; its state has it in words."""

    NO_PROGRAM = "no_program"
    """Its command, or the folder to start it in, does not exist."""
    NOT_EXECUTABLE = "not_executable"
    ENDED = "ended"
    """It ended, or closed its end of the connection."""
    UNREACHABLE = "unreachable"
    UNAUTHORIZED = "unauthorized"
    LOGIN_REQUIRED = "login_required"
    """A person must log in there; its state says by which command. One that is ready takes some requests without."""
    NO_ENDPOINT = "no_endpoint"
    """Something answers at its address, but not as an MCP server does."""
    TIMED_OUT = "timed_out"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server for people to read. `reason` and `failure` say why it is not ready, or which login it wants of one that
    is; `restarts` counts starts after the first.

    `last_error` is why a start or a connection failed last, also after it has come back.
    """

    name: str
    status: Status
    reason: str = ""
    protocol: str | None = None
    tools: int = 0
    restarts: int = 0
    transport: Kind = "stdio"
    last_error: str = ""
    failure: Failure | None = None

    @property
    def era(self) -> Literal["handshake", "modern"] | None:
        """Which of the two ways of speaking the protocol it knows; None while it has said nothing."""
        if self.protocol is None:
            return None
        return "modern" if self.protocol in MODERN_PROTOCOL_VERSIONS else "handshake"
