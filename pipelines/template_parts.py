"""What a chat template has written, in parts: its own text, and the placeholders of contents. Pure."""

from collections.abc import Sequence

from tenuto.errors import TemplateFailed
from tenuto.pipelines.placeholders import Part, Placeholder
from tenuto.sessions.items import AssistantItem, Item


def require_places(items: Sequence[Item], since: int, parts: Sequence[Part]) -> None:
    """A template that leaves a message out would make the model answer something else.

    Raises:
        TemplateFailed: it has left out one of these items, from that place on.
    """
    placed = {part.owner for part in parts if isinstance(part, Placeholder)}
    for index, item in enumerate(items[since:], since):
        if (
            index not in placed
            and not isinstance(item, AssistantItem)
            and not (item.kind == "system" and not item.text)
        ):
            role = item.kind.replace("_", " ")
            raise TemplateFailed(
                f"the model's chat template does not render the {role} message at item {index}", "messages"
            )


def shown(part: Part) -> str:
    """As people read it."""
    return part.content if isinstance(part, Placeholder) else part


def joined(text: str, invitation: str) -> str:
    """A text up to where the invitation begins in it, be it cut at the text's end, and then the invitation."""
    places = range(len(text) + 1)
    begins = (place for place in places if text.startswith(invitation[: len(text) - place], place))
    return text[: next(begins)] + invitation if invitation else text
