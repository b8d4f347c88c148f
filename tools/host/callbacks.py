"""What MCP servers may ask of us in turn: sampling, elicitation and roots, each answered by whoever makes the `Host`.

`tenuto serve` offers none of them yet. What a server is told of that, and how its questions are matched to the calls
that are in flight, is all here.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
)

from tenuto.tools.spec import CallContext


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks: the server, and the calls that are in flight on it. The protocol does not say for which of them."""

    server: str
    calls: tuple[CallContext, ...]


Sampling = Callable[
    [Asking, CreateMessageRequestParams], Awaitable[CreateMessageResult | CreateMessageResultWithTools | ErrorData]
]
Elicitation = Callable[[Asking, ElicitRequestParams], Awaitable[ElicitResult | ErrorData]]
Roots = Callable[[Asking], Awaitable[ListRootsResult | ErrorData]]


class ClientCallbacks(Protocol):
    """What we offer to servers; None is not offered. Each may be called several times at once.

    A call's progress does not come here: it goes to `CallContext.progress`.
    """

    @property
    def sampling(self) -> Sampling | None:
        """Let a model of ours write a message for the server."""

    @property
    def elicitation(self) -> Elicitation | None:
        """Ask a person, by a form or by a link."""

    @property
    def roots(self) -> Roots | None:
        """Tell which folders the server may work in."""
