"""A model's chat template: items in, template text and content placeholders out, cut at the items.

Rendered as Hugging Face does it, with sentinels in place of content, and where the template does not look back, with a
stand-in in place of a long past. No tokens here.
"""

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Any

import jinja2

from tenuto.errors import ModelLoadFailed, TemplateFailed
from tenuto.pipelines import content_parts, folding, looking_back, told_tools
from tenuto.pipelines.item_ends import between, item_ends
from tenuto.pipelines.known_templates import is_known_not_to_look_back
from tenuto.pipelines.message_fields import TEXT_ONLY, Sight, message_fields, tool_fields
from tenuto.pipelines.offered_tools import Offer, taken
from tenuto.pipelines.placeholders import Part, Placeholder, PlaceholderTable, to_json
from tenuto.pipelines.stand_in import stand_in
from tenuto.pipelines.template_budget import Overrun
from tenuto.pipelines.template_environment import BoundedEnvironment, BoundedTemplate
from tenuto.pipelines.template_parts import joined, require_places, shown
from tenuto.pipelines.template_variables import NO_VARIABLES, RESERVED, TemplateVariables
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)

# What a template's own code can raise: Jinja's errors, and those of the Python operations that it uses.
_TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


# A smallest conversation with a call, to try a template with.
_PROBE_TOOL = ToolSpec("f", "d", {"type": "object", "properties": {"a": {"type": "string"}}})
_PROBE = (UserItem("x"), AssistantItem(calls=(ToolCall("call_0", "f", '{"a": "b"}'),)))
_PROBE_JSON = '{"a": "b"}'
_RESULT = ToolResultItem("call_0", "f", "x")
_IMAGE = Attachment("image", "image/png", data="")
_BOTH = (False, True)
_OF_TOOLS = re.compile("tool|function", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Suffix:
    """What follows the content of the items before: the parts of each new item, then of the opening."""

    items: tuple[tuple[Part, ...], ...]
    opening: tuple[Part, ...]
    first: int = 0
    """The first new item's number, as the owner of its placeholders."""

    @property
    def spans(self) -> tuple[tuple[Part, ...], ...]:
        """All of it in order."""
        return (*self.items, self.opening)


class ChatTemplate:
    """A compiled chat template. Immutable, safe for any thread.

    Raises:
        ModelLoadFailed: the template is no Jinja template, or does not come to an end.
    """

    def __init__(
        self,
        text: str,
        special_texts: Mapping[str, str],
        stop_texts: Sequence[str] = (),
        sight: Sight = TEXT_ONLY,
    ) -> None:
        self.text = text
        self._sight = Sight(lambda _: None)  # while it is found out where images have a place
        self._special_texts = dict(special_texts)
        self._tells_tools = False
        self.variables = NO_VARIABLES
        try:
            self._template = BoundedTemplate(BoundedEnvironment(to_json), text)
            self.reads = self._template.reads - RESERVED - self._special_texts.keys()
            """The variables that it looks at, as far as its text shows; some are its own."""
        except (*_TEMPLATE_ERRORS, SyntaxError) as error:
            raise ModelLoadFailed(f"the model's chat template cannot be read: {error}") from error
        self._takes = folding.Takes()
        self._parted: Collection[str] = ()
        self._mapped_arguments = False
        self._offer = taken(self._takes_offer, [_PROBE_TOOL])
        self._parted = content_parts.found_out(self._places)
        if self._parted:  # what it has refused may have been texts, and not how tools were offered
            self._offer = taken(self._takes_offer, [_PROBE_TOOL])
        self._mapped_arguments = self._wants_mapped()
        self._takes = folding.found_out(self._writes)
        self.takes_images = self._places_image(UserItem("x", (_IMAGE,)))
        """Whether it has a place for an image in a user's message."""
        sight = sight if self.takes_images else TEXT_ONLY
        self._sight = replace(sight, in_results=self._places_image(*_PROBE, replace(_RESULT, attachments=(_IMAGE,))))
        self.closing = self._closing()
        self._closings = tuple(text for text in (self.closing, *stop_texts) if text)

    def with_variables(self, variables: TemplateVariables) -> "ChatTemplate":
        """The same, rendered with these variables besides. Some may show only in what opens the model's turn."""
        other = copy.copy(self)
        other.variables = variables
        vars(other).pop("looks_back", None)  # what is found out without them may not hold with them
        return other

    def telling_tools(self) -> "ChatTemplate":
        """The same, in which tools, calls and results are plain messages, whatever it may write of them itself."""
        other = copy.copy(self)
        other._tells_tools = True
        other._sight = replace(self._sight, in_results=self.takes_images)  # a result is a message of the user
        vars(other).pop("looks_back", None)
        return other

    @property
    def identity(self) -> str:
        """What its text alone, and how it is used, make of a conversation."""
        return f"{self.text}\0{told_tools.HOW}" if self._tells_tools else self.text

    @cached_property
    def knows_tools(self) -> bool:
        """Whether it writes tools or calls in a way of its own. One that refuses to be tried with them may."""
        if not _OF_TOOLS.search(self.text):
            return False
        try:
            alone, offered = (self._render(_PROBE[:1], tools, opening=False) for tools in ([], [_PROBE_TOOL]))
            called = self._render(_PROBE, [_PROBE_TOOL], opening=False)
        except TemplateFailed:
            return True
        owners = {part.owner for part in called if isinstance(part, Placeholder)}
        return list(map(shown, alone)) != list(map(shown, offered)) or len(_PROBE) - 1 in owners

    @cached_property
    def looks_back(self) -> str | None:
        """In words, what of a long past shows in what is written after it; None where nothing does.

        Found out by some hundred renderings, when it is first asked for.
        """
        return None if not self.variables and is_known_not_to_look_back(self.text) else self.found_to_look_back()

    def found_to_look_back(self) -> str | None:
        """The same, found out now."""
        return looking_back.looks_back(self.written, self.named)

    @cached_property
    def named(self) -> looking_back.Named:
        """The words and numbers that it names."""
        return looking_back.named(BoundedEnvironment(to_json).parse(self.text))

    def written(self, before: Sequence[Item], new: Sequence[Item], tools: Sequence[ToolSpec]) -> list[list[str]]:
        """What `suffix` gives after the whole past, as text: two renderings can be compared. Raises TemplateFailed."""
        suffix = self._suffix(before, new, tools)
        return [list(map(shown, span)) for span in suffix.spans]

    def suffix(
        self, before: Sequence[Item], new: Sequence[Item], tools: Sequence[ToolSpec], *, whole: bool = False
    ) -> Suffix:
        """What follows the content of the last item `before`; `whole`: rendered after all of them in any case.

        An item's content ends with its last placeholder; an assistant's ends where its turn is closed, after its calls.

        Raises:
            TemplateFailed: the template refused the conversation, or has no place for one of the new items.
        """
        short = before if whole else stand_in(before)
        if len(short) < len(before) and self.looks_back is None:
            try:
                return self._suffix(short, new, tools)
            except TemplateFailed:
                pass  # the whole says it with its own numbers, or is not refused at all
        return self._suffix(before, new, tools)

    def invitation(self, tools: Sequence[ToolSpec]) -> str:
        """The text that the generation prompt adds to a conversation; empty where it adds none."""
        try:
            plain, inviting = ("".join(map(str, self._render(_PROBE[:1], tools, opening=both))) for both in _BOTH)
        except TemplateFailed:
            return ""
        return inviting.removeprefix(plain) if inviting.startswith(plain) else ""

    @staticmethod
    def opening_of(suffix: Suffix, place: int, invitation: str) -> tuple[Part, ...]:
        """What would have opened the assistant's turn that a suffix has at `place`, as far as the suffix tells.

        What a template writes before a turn can end otherwise than what invites one, which ends as the invitation does.
        """
        owner = suffix.first + place
        lead = list(
            takewhile(lambda part: not (isinstance(part, Placeholder) and part.owner == owner), suffix.items[place])
        )
        text = lead.pop() if lead and not isinstance(lead[-1], Placeholder) else ""
        return (*lead, joined(text, invitation))

    def _suffix(self, before: Sequence[Item], new: Sequence[Item], tools: Sequence[ToolSpec]) -> Suffix:
        items = [*before, *new]
        parts = self._render(items, tools, opening=True)
        require_places(items, len(before), parts)
        ends = item_ends(items, parts, self._closings)
        places = [ends[len(before) - 1] if before else (0, 0), *ends[len(before) :], (len(parts), 0)]
        spans = [between(parts, begin, end) for begin, end in pairwise(places)]
        return Suffix(items=tuple(spans[:-1]), opening=spans[-1], first=len(before))

    def opening(self) -> str:
        """The template text that opens an assistant's turn after a user's message; empty where none can be told."""
        try:
            parts = self.suffix([UserItem("x")], [], []).opening
        except TemplateFailed:
            return ""
        return "".join(part for part in parts if not isinstance(part, Placeholder))

    def call(self, *, mapped: bool | None = None) -> str:
        """How the template writes a turn that calls `f` with {"a": "b"}; empty where it writes none."""
        try:
            parts = self._render(_PROBE, [_PROBE_TOOL], opening=False, mapped=mapped)
        except TemplateFailed:
            return ""
        places = [place for place, part in enumerate(parts) if isinstance(part, Placeholder) and part.owner == 0]
        turn = parts[places[-1] + 1 :] if places else parts
        return "".join(map(shown, turn))

    def tool_json(self, tools: Sequence[ToolSpec]) -> str:
        """The JSON of a tool list, as templates see it."""
        return str(to_json([tool_fields(tool) for tool in tools]))

    def _render(
        self, items: Sequence[Item], tools: Sequence[ToolSpec], *, opening: bool, mapped: bool | None = None
    ) -> list[Part]:
        table = PlaceholderTable()
        mapped = self._mapped_arguments if mapped is None else mapped
        messages = self._messages(table, items, tools, mapped=mapped)
        offered = () if self._tells_tools else tools
        try:
            variables = {name: table.setting(value) for name, value in self.variables.values.items()}
            text = self._template.render(
                **{**self._special_texts, **self._offer.variables(table, offered), **variables},
                messages=content_parts.parted(folding.folded(table, messages, self._takes), self._parted),
                add_generation_prompt=opening,
            )
            return table.split(text)
        except _TEMPLATE_ERRORS as error:
            raise TemplateFailed(str(error) or type(error).__name__, "messages") from error

    def _messages(
        self, table: PlaceholderTable, items: Sequence[Item], tools: Sequence[ToolSpec], *, mapped: bool
    ) -> list[dict[str, Any]]:
        if self._tells_tools:
            return told_tools.told(table, items, tools, self._sight)
        each = enumerate(items)
        return [message_fields(table, index, item, mapped=mapped, sight=self._sight) for index, item in each]

    def _takes_offer(self, offer: Offer, tools: Sequence[ToolSpec]) -> bool:
        self._offer = offer
        return self._renders(_PROBE[:1], tools)

    def _wants_mapped(self) -> bool:
        """Whether the template is to be given a call's arguments as a mapping and not as JSON text.

        Where it takes both, the one with which it writes the call: the text, if JSON comes of it that does not come of
        the other, be it for Python's way of writing; the mapping, if the template has its own way of writing one.
        """
        text, mapping = (self._renders(_PROBE, [_PROBE_TOOL], mapped=each) for each in _BOTH)
        if not text or not mapping:
            return mapping
        text_call, mapped_call = (self.call(mapped=each) for each in _BOTH)
        if _PROBE_JSON in text_call:
            return not any(mark in mapped_call for mark in (_PROBE_JSON, "{'", '"b"'))
        return _PROBE_JSON in mapped_call

    def _renders(self, items: Sequence[Item], tools: Sequence[ToolSpec], *, mapped: bool = False) -> bool:
        """Whether the template takes a conversation; `mapped`: with arguments as mappings, not as JSON text."""
        try:
            self._render(items, tools, opening=False, mapped=mapped)
        except TemplateFailed as error:
            if isinstance(error.__cause__, Overrun):
                raise ModelLoadFailed(str(error)) from error
            return False
        return True

    def _writes(self, items: Sequence[Item]) -> bool:
        """Whether the template takes a conversation and has a place for each item, one after the other."""
        try:
            parts = self._render(items, [], opening=True)
            require_places(items, 0, parts)
        except TemplateFailed:
            return False
        owners = [part.owner for part in parts if isinstance(part, Placeholder) and part.owner is not None]
        places = list(dict.fromkeys(owners))
        return places == sorted(places)

    def _places(self, items: Sequence[Item], parted: Collection[str]) -> bool:
        """Whether each item of a conversation has a place where the contents of these roles are lists of parts."""
        other = copy.copy(self)
        other._parted = parted
        tools = [_PROBE_TOOL] if any(isinstance(item, ToolResultItem) for item in items) else []
        for mapped in _BOTH if tools else (False,):
            try:
                parts = other._render(items, tools, opening=True, mapped=mapped)
            except TemplateFailed:
                continue
            owners = {part.owner for part in parts if isinstance(part, Placeholder)}
            if owners >= set(range(len(items))) and not any(map(content_parts.shows_list, map(shown, parts))):
                return True
        return False

    def _places_image(self, *items: Item) -> bool:
        try:
            parts = self._render(items, [_PROBE_TOOL], opening=True)
        except TemplateFailed:
            return False
        return any(isinstance(part, Placeholder) and part.image is not None for part in parts)

    def _closing(self) -> str:
        """The text that closes an assistant's turn, end-of-turn token first; empty where none can be told."""
        try:
            parts = self._render([UserItem("x"), AssistantItem("x")], [], opening=False)
        except TemplateFailed:
            return ""
        last = parts[-1] if parts else ""
        return "" if isinstance(last, Placeholder) else last
