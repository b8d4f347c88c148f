"""What an MCP server may ask of us in turn, and who answers: whoever waits for the call in the middle of which it asks.

Answers come through the calls' own contexts, in both eras of the protocol; `calls.py` finds the call.
"""

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
    LoggingMessageNotificationParams,
)

SampleResult = CreateMessageResult | CreateMessageResultWithTools


@dataclass(frozen=True, slots=True)
class Offered:
    """What a server is told that it may ask for, besides asking people."""

    sampling: bool = False
    context: bool = False
    """Whether samples may include the conversation."""
    roots: bool = False


class ClientCallbacks(Protocol):
    """What we offer to one server. Each may be called several times at once."""

    @property
    def offered(self) -> Offered:
        """What it is told of."""

    async def elicit(self, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Ask a person, by a form or by a link."""

    async def sample(self, params: CreateMessageRequestParams) -> SampleResult | ErrorData:
        """Ask the model."""

    async def logged(self, params: LoggingMessageNotificationParams) -> None:
        """Take a message of its log."""

    async def roots(self) -> ListRootsResult | ErrorData:
        """The folders to work in."""
