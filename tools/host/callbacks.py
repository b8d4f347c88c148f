"""What an MCP server may ask of us in turn, and who answers: whoever waits for the call in the middle of which it asks.

Answers come through the calls' own contexts, in both eras of the protocol; `calls.py` finds the call.
"""

from typing import Protocol

from mcp_types import ElicitRequestParams, ElicitResult, ErrorData


class ClientCallbacks(Protocol):
    """What we offer to one server. Each may be called several times at once."""

    async def elicit(self, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Ask a person, by a form or by a link."""
