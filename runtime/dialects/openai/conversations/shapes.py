"""What a conversation is, and what is told of one that was deleted. Its items are shapes of responses. No meaning.

https://platform.openai.com/docs/api-reference/conversations
"""

from typing import Literal

from pydantic import RootModel

from tenuto.runtime.dialects.openai.responses.list_shapes import ListedItem
from tenuto.runtime.http.shape import Shape


class ConversationAnswer(Shape):
    """A conversation, which is the session of this id."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(Shape):
    """A conversation is deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: bool


class OneItem(RootModel[ListedItem]):
    """An item of a conversation."""
