"""The vocabulary of a conversation: items, tool calls and tool specifications.

Plain frozen facts, the same for every dialect, stored as JSON. No wire names of any dialect, no tokens.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool | None = None
    """How a grammar holds its calls to the schema. None: as it is written. True: objects have no members but those that
    are named. False: not at all.
    """


@dataclass(frozen=True, slots=True)
class SystemItem:
    """Instructions that stand before the conversation."""

    text: str
    kind: Literal["system"] = "system"


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a message carries besides its text: in base64 as `data`, or where it lies as `uri`. It is never fetched."""

    kind: Literal["image", "audio", "file"]
    mime_type: str
    data: str | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class McpResource:
    """A resource of an MCP server that a client has named, by the server's own URI."""

    server: str
    uri: str
    mime_type: str | None = None
    """As the server said when it was read."""
    kind: Literal["mcp_resource"] = "mcp_resource"


@dataclass(frozen=True, slots=True)
class McpPrompt:
    """A prompt of an MCP server that a client has named. `place` counts the messages that it has become."""

    server: str
    name: str
    arguments: dict[str, str] = field(default_factory=dict)
    place: int = 0
    kind: Literal["mcp_prompt"] = "mcp_prompt"


_Named = Annotated[McpResource | McpPrompt, Field(discriminator="kind")]
Source = Annotated[_Named | None, Field(exclude_if=lambda source: source is None)]
"""What of an MCP server an item is. The client knows the item by that alone, and never by its content."""


@dataclass(frozen=True, slots=True)
class UserItem:
    """What a person or a client program said."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    kind: Literal["user"] = "user"
    source: Source = None


@dataclass(frozen=True, slots=True)
class NoteItem:
    """What the runtime told the model, in the place of a user. No client has seen it."""

    text: str
    kind: Literal["note"] = "note"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call in an assistant turn.

    `arguments` is the JSON text as the model wrote it. `server` tells who executes it: the runtime (true) or the
    client that listed the tool (false).
    """

    id: str
    name: str
    arguments: str
    server: bool = False


@dataclass(frozen=True, slots=True)
class AssistantItem:
    """One round of the model: text, reasoning and calls. `incomplete` when it was cut before its end of turn."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    incomplete: bool = False
    kind: Literal["assistant"] = "assistant"
    source: Source = None
    """Where an MCP server's prompt has the assistant say it, and no model did."""


@dataclass(frozen=True, slots=True)
class ToolResultItem:
    """The result of one call, in call order. `text` is whole; `shown` is what the model read where that is less."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    server: bool = False
    shown: str | None = None
    structured: Any = None
    attachments: tuple[Attachment, ...] = ()
    kind: Literal["tool_result"] = "tool_result"

    @property
    def model_text(self) -> str:
        """What the model reads."""
        return self.text if self.shown is None else self.shown


def source_of(item: "Item") -> McpResource | McpPrompt | None:
    """What of an MCP server an item is."""
    return item.source if isinstance(item, UserItem | AssistantItem) else None


Item = Annotated[SystemItem | UserItem | NoteItem | AssistantItem | ToolResultItem, Field(discriminator="kind")]

_ITEM_BYTES = 512

_ITEM: TypeAdapter[Item] = TypeAdapter(Item)
_TOOLS: TypeAdapter[list[ToolSpec]] = TypeAdapter(list[ToolSpec])


def item_bytes(item: Item) -> int:
    """About what an item takes in memory."""
    size = _ITEM_BYTES + len(item.text)
    match item:
        case UserItem(attachments=attachments) | ToolResultItem(attachments=attachments):
            size += sum(len(one.data or "") for one in attachments)
        case AssistantItem(reasoning=reasoning, calls=calls):
            size += len(reasoning) + sum(len(call.arguments) for call in calls)
        case _:
            pass
    return size


def item_to_json(item: Item) -> str:
    """The stored form of an item."""
    return _ITEM.dump_json(item, exclude_defaults=False).decode()


def item_from_json(text: str | bytes) -> Item:
    """Read the stored form. Raises pydantic.ValidationError where it is not one."""
    return _ITEM.validate_json(text)


def tools_to_json(tools: list[ToolSpec]) -> str:
    """The stored form of a tool list."""
    return _TOOLS.dump_json(tools).decode()


def tools_from_json(text: str | bytes) -> list[ToolSpec]:
    """Read the stored form of a tool list."""
    return _TOOLS.validate_json(text)
