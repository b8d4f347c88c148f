"""What requests for conversations look like on the wire. Shapes only, no meaning.

https://platform.openai.com/docs/api-reference/conversations
"""

from typing import Annotated

from pydantic import Field

from tenuto.runtime.dialects.openai.responses.wire import AnyItem
from tenuto.runtime.http.body import Wire, at_most
from tenuto.sessions.metadata import MOST_PAIRS, Metadata

MOST_ITEMS = 20
"""That one request may bring."""

Items = Annotated[list[AnyItem], Field(max_length=MOST_ITEMS)]
Described = Annotated[Metadata | None, at_most(MOST_PAIRS)]


class CreateBody(Wire):
    """A request for a new conversation. None: not said."""

    items: Items | None = None
    metadata: Described = None


class UpdateBody(Wire):
    """What a conversation's metadata is to be; null for none."""

    metadata: Described


class ItemsBody(Wire):
    """Items that are to be added."""

    items: Annotated[Items, Field(min_length=1)]
