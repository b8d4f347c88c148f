"""What messages name of MCP servers, in the place of its name: read once, before the turn changes anything.

A session keeps what was read, and nothing is read again for it. So a reading is outside of every session: where a turn
turns out to need one, `Unread` says which, and the turn is tried again with it at hand.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import anyio

from tenuto.errors import InvalidRequest, NotFound, ToolFailed
from tenuto.sessions.items import AssistantItem, Item, McpPrompt, McpResource, UserItem, source_of
from tenuto.tools.host.contents import Content, of_message, of_resource
from tenuto.tools.host.results import MAX_ATTACHMENT_CHARACTERS, MAX_TEXT_CHARACTERS
from tenuto.tools.offering import Offering

MOST_NAMED = 32
"""Resources and prompts that one request names anew."""
MOST_MESSAGES = 100
"""Of one prompt."""
READ_S = 60.0
"""For all that one request names."""
_AT_ONCE = 4
_PARAM = "messages"

Named = McpResource | McpPrompt
Brought = dict[Hashable, tuple[Item, ...]]
"""What has been read, by what was named."""


class Unread(Exception):
    """Items name what has not been read. Nothing has changed."""

    def __init__(self, named: Sequence[Named]) -> None:
        super().__init__("what an MCP server has is to be read first")
        self.named = named


def named_last(items: Sequence[Item]) -> list[Named]:
    """What is named after the assistant's last word: whatever session the items join, it is new there."""
    since = max((place for place, item in enumerate(items) if isinstance(item, AssistantItem)), default=-1)
    return named(items[since + 1 :])


def in_place(items: Sequence[Item], brought: Mapping[Hashable, tuple[Item, ...]]) -> tuple[Item, ...]:
    """New items, with what was read where it was named. Raises Unread; InvalidRequest where that leaves no question."""
    unread = [each for each in named(items) if _key(each) not in brought]
    if unread:
        raise Unread(unread)
    new = placed(items, brought)
    if new and items[-1] is not new[-1] and isinstance(new[-1], AssistantItem):
        raise InvalidRequest(
            "nothing to answer: the prompt ends with a message of the assistant's; add a message after it", _PARAM
        )
    return new


async def read(offering: Offering, principal: str, wanted: Iterable[Named], brought: Brought) -> None:
    """Read what is not `brought` yet, and add it there.

    Raises:
        InvalidRequest: it is too much, it is not there, or no model could read it. The text says what.
        ServerUnreachable, ToolFailed: its server is not there, or did not answer in time.
    """
    unread = {key: each for each in wanted if (key := _key(each)) not in brought}
    if len(unread) > MOST_NAMED:
        raise InvalidRequest(
            f"the messages name {len(unread)} resources and prompts; a request can name {MOST_NAMED}", _PARAM
        )
    if not unread:
        return
    room, gate = _Room(), anyio.Semaphore(_AT_ONCE)

    async def bring(key: Hashable, each: Named) -> None:
        async with gate:
            brought[key] = await _read(offering, principal, each, room)

    try:
        with anyio.fail_after(READ_S):
            async with anyio.create_task_group() as tasks:
                for key, each in unread.items():
                    tasks.start_soon(bring, key, each)
    except TimeoutError:
        raise ToolFailed(
            f"what the messages name of MCP servers was not read within {READ_S:g} s", may_have_run=True
        ) from None
    except BaseExceptionGroup as several:  # the others were cancelled
        first = several.exceptions[0]
        raise first from first.__cause__


async def _read(offering: Offering, principal: str, named: Named, room: "_Room") -> tuple[Item, ...]:
    try:
        if isinstance(named, McpResource):
            return (await _resource(offering, principal, named, room),)
        return await _prompt(offering, principal, named, room)
    except NotFound as error:
        raise InvalidRequest(f"{_words(named)}: {error}", _PARAM) from None


async def _resource(offering: Offering, principal: str, named: McpResource, room: "_Room") -> UserItem:
    content = of_resource(await offering.read(principal, named.server, named.uri))
    if content.unread and not (content.texts or content.images):
        what = "; ".join(content.unread)
        raise InvalidRequest(f"{_words(named)} is {what}: text and images alone can be attached", _PARAM)
    room.take(named, content)
    kind = "" if content.mime_type is None else f", {content.mime_type}"
    notes = tuple(f"[{each}, not shown]" for each in content.unread)
    text = "\n".join((f"[resource of {named.server}: {named.uri}{kind}]", *content.texts, *notes))
    return UserItem(text, content.images, source=replace(named, mime_type=content.mime_type))


async def _prompt(offering: Offering, principal: str, named: McpPrompt, room: "_Room") -> tuple[Item, ...]:
    found = await offering.prompt(principal, named.server, named.name, named.arguments)
    if not 0 < len(found.messages) <= MOST_MESSAGES:
        count = len(found.messages)
        raise InvalidRequest(f"{_words(named)} has {count} messages; it can have 1 to {MOST_MESSAGES}", _PARAM)
    items: list[Item] = []
    for place, message in enumerate(found.messages):
        content, source = of_message([message.content]), replace(named, place=place)
        room.take(named, content)
        text = "\n".join(content.texts)
        if message.role == "user":
            items.append(UserItem(text, content.images, source=source))
        else:
            items.append(AssistantItem(text or "[image]", source=source))
    return tuple(items)


class _Room:
    """What one request may bring by names, all together."""

    def __init__(self) -> None:
        self._text, self._images = MAX_TEXT_CHARACTERS, MAX_ATTACHMENT_CHARACTERS

    def take(self, named: Named, content: Content) -> None:
        """Raises InvalidRequest where it is too much."""
        for size, left, most, of in (
            (content.characters, self._text, MAX_TEXT_CHARACTERS, "characters"),
            (content.image_characters, self._images, MAX_ATTACHMENT_CHARACTERS, "characters of images in base64"),
        ):
            if size > left:
                raise InvalidRequest(
                    f"{_words(named)} has {size} {of}, and there is room for {left}: all that a request names can have"
                    f" {most}",
                    _PARAM,
                )
        self._text -= content.characters
        self._images -= content.image_characters


def named(items: Sequence[Item]) -> list[Named]:
    """What items name."""
    return [source for item in items if (source := source_of(item)) is not None]


def placed(items: Sequence[Item], brought: Mapping[Hashable, tuple[Item, ...]]) -> tuple[Item, ...]:
    """The items, with what was read where it was named."""
    return tuple(_placed(items, brought))


def _placed(items: Sequence[Item], brought: Mapping[Hashable, tuple[Item, ...]]) -> Iterator[Item]:
    for item in items:
        source = source_of(item)
        yield from (item,) if source is None else brought[_key(source)]


def _key(named: Named) -> Hashable:
    if isinstance(named, McpResource):
        return named.kind, named.server, named.uri
    return named.kind, named.server, named.name, tuple(sorted(named.arguments.items()))


def _words(named: Named) -> str:
    if isinstance(named, McpResource):
        return f"the resource {named.uri[:200]!r} of {named.server}"
    return f"the prompt {named.name[:100]!r} of {named.server}"
