"""A session's tokens for one codec and tool block: which ledger, what is not in it yet, and how it grows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import anyio.to_thread

from tenuto.pipelines.base import TOOL_DIGITS, Codec
from tenuto.pipelines.images import Piece
from tenuto.runtime.engine.messages import MissReason
from tenuto.runtime.loop.amounts import RENDERED
from tenuto.runtime.loop.images import LOOKING, may_see
from tenuto.sessions.draft import Draft
from tenuto.sessions.items import AssistantItem, Item, ToolSpec
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.tokens import NOTHING, Prefix, Tokens

KEPT_LEDGERS = 4
"""A session that changes its tools or its model keeps so many ledgers; the oldest goes first."""

Span = tuple[int, ...]

_REASONS = {"tools": MissReason.TOOLS_CHANGED, "variables": MissReason.VARIABLES_CHANGED}

_VALUE_CHARACTERS = 12
"""What a value of a schema takes with its name, roughly."""

_HALF = 16


def fingerprint(codec: Codec, tools: Sequence[ToolSpec]) -> str:
    """The name of a session's ledger: 16 digits for tokeniser and template, and 16 more for the tool block and for the
    template's variables, where those show."""
    return codec.family[:_HALF] + codec.fingerprint(tools)[:_HALF]


def made_by(codec: Codec, name: str) -> bool:
    """Whether a ledger of that name has this codec's tokens, whatever its tool block and variables."""
    return name[:_HALF] == codec.family[:_HALF]


def _has_tools_of(name: str, other: str) -> bool:
    """Whether two ledgers' names say that their tool blocks are of the same tools."""
    end = _HALF + TOOL_DIGITS
    return name[_HALF:end] == other[_HALF:end]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is to read, before any of it is kept: the ledger's tokens, then what is new, then the opening."""

    fingerprint: str
    kept: int
    """Items of the session whose tokens the ledger has."""
    known: Prefix
    """Names the tokens that the ledger had when this was rendered."""
    spans: tuple[Span, ...]
    opening: Span
    computed_before: int = 0
    """How many of these tokens had a cache when the model last spoke in the session: all but the last it said."""
    changed: Literal["tools", "variables"] | None = None
    """With what else some of these items have been read before: other tools, or other variables of the template."""
    taken: Span = ()
    """What was new and is a part of the ledger now."""
    pieces: tuple[Piece, ...] = ()
    """Those of the images in it."""

    @property
    def miss_reason(self) -> MissReason | None:
        """Why items that have been read before are rendered anew."""
        return None if self.changed is None else _REASONS[self.changed]

    @property
    def total(self) -> int:
        """Its length in tokens."""
        return self.known.length + len(self.taken) + sum(map(len, self.spans)) + len(self.opening)

    @property
    def fresh(self) -> Span:
        """All tokens that follow those that are known."""
        return (*self.taken, *(token for span in self.spans for token in span), *self.opening)

    def settled(self) -> "Prompt":
        """The same prompt once `extend` has made what was new a part of the ledger."""
        taken = (*self.taken, *(token for span in self.spans for token in span))
        return replace(self, kept=self.kept + len(self.spans), taken=taken, spans=())

    def all_tokens(self, ledgers: Mapping[str, Ledger]) -> Tokens:
        """All tokens in order. The ledgers are those that it was made from; they may have grown since."""
        ledger = ledgers.get(self.fingerprint)
        tokens = Tokens() if ledger is None else ledger.tokens.copy(self.known.length)
        tokens.extend(self.fresh)
        return tokens


async def read(
    codec: Codec,
    tools: Sequence[ToolSpec],
    ledgers: Mapping[str, Ledger],
    keep: int,
    items: Sequence[Item],
    begun: AssistantItem | None = None,
) -> Prompt:
    """What `prompt` gives, rendered in a worker thread where that takes long. Nobody may change anything meanwhile."""
    if not ledgers and _are_large(tools):  # even naming the ledger looks at all of them
        return await anyio.to_thread.run_sync(prompt, codec, tools, ledgers, keep, items, begun)
    ledger = ledgers.get(fingerprint(codec, tools))
    begin = 0 if codec.looks_back is not None or ledger is None else min(ledger.items, keep)
    if may_see(codec, items):
        return await anyio.to_thread.run_sync(prompt, codec, tools, ledgers, keep, items, begun, limiter=LOOKING)
    if not RENDERED.holds([*items[begin:], *(() if begun is None else (begun,))]):
        return await anyio.to_thread.run_sync(prompt, codec, tools, ledgers, keep, items, begun)
    return prompt(codec, tools, ledgers, keep, items, begun)


def _are_large(tools: Sequence[ToolSpec]) -> bool:
    """Whether they have much text. Stops looking where they have."""
    pending: list[Any] = []
    characters = 0
    for tool in tools:
        characters += len(tool.description)
        pending.append(tool.parameters)
        while pending and characters <= RENDERED.characters:
            value = pending.pop()
            characters += len(value) if isinstance(value, str) else _VALUE_CHARACTERS
            if isinstance(value, dict):
                pending.extend(value.values())
            elif isinstance(value, list):
                pending.extend(value)
        if characters > RENDERED.characters:
            return True
    return False


def prompt(
    codec: Codec,
    tools: Sequence[ToolSpec],
    ledgers: Mapping[str, Ledger],
    keep: int,
    items: Sequence[Item],
    begun: AssistantItem | None = None,
) -> Prompt:
    """Render what the ledger does not have of `items`, of which the first `keep` are the session's own.

    A turn that was `begun` opens with what stands in it: it is rendered as if it were past, up to its content's end.

    Where the session has gone on with other tools or variables, its later items are rendered anew, but what the model
    sampled stays as it was: the tool block changes, the answers do not.

    Nothing is changed. Raises TemplateFailed.
    """
    name = fingerprint(codec, tools)
    ledger = ledgers.get(name)
    covered = 0 if ledger is None else min(ledger.items, keep)
    known = NOTHING if ledger is None else ledger.prefix(covered)
    last = ledger.tokens[known.length - 1] if ledger is not None and known.length else None
    others = [one for key, one in ledgers.items() if key != name and key[:_HALF] == name[:_HALF]]
    said = _sampled_elsewhere(others, covered, min(keep, len(items)), items)
    rendered = codec.suffix(
        items[:covered],
        [*items[covered:], *(() if begun is None else (begun,))],
        tools,
        ended=last in codec.info.stop_tokens,
        said={place - covered: span for place, span in said.items()},
    )
    further = [one.fingerprint for one in others if min(one.items, keep) > covered]
    changed = _changed(name, further)
    computed_before = _computed_before(ledger, items[:covered])
    spans, opening = (rendered.items, rendered.opening) if begun is None else (rendered.items[:-1], rendered.items[-1])
    return Prompt(name, covered, known, spans, opening, computed_before, changed, pieces=codec.pieces(items))


def _changed(name: str, further: Sequence[str]) -> Literal["tools", "variables"] | None:
    if not further:
        return None
    return "variables" if any(_has_tools_of(name, one) for one in further) else "tools"


def _computed_before(ledger: Ledger | None, items: Sequence[Item]) -> int:
    spoken = (place for place in range(len(items) - 1, -1, -1) if isinstance(items[place], AssistantItem))
    last = next(spoken, None)
    return 0 if ledger is None or last is None else ledger.end(last + 1) - 1


def _sampled_elsewhere(
    others: Sequence[Ledger], covered: int, keep: int, items: Sequence[Item]
) -> dict[int, Sequence[int]]:
    """The assistant's items that this ledger lacks and another has, with their tokens there."""
    if not others:
        return {}
    furthest = max(others, key=lambda one: one.items)
    end = min(furthest.items, keep)
    # Nothing can be rendered before the first item, so that one is not among them.
    places = (place for place in range(max(covered, 1), end) if isinstance(items[place], AssistantItem))
    return {place: furthest.span(place) for place in places}


def extend(draft: Draft, prompt: Prompt) -> None:
    """Let the session's ledger cover what the prompt rendered."""
    ledgers = draft.session.ledgers
    if prompt.fingerprint not in ledgers:
        for oldest in list(ledgers)[: max(len(ledgers) - KEPT_LEDGERS + 1, 0)]:
            draft.drop_ledger(oldest)
    assert draft.covered(prompt.fingerprint) == prompt.kept, "a prompt is kept before the ledger changes again"
    draft.grow(prompt.fingerprint, prompt.spans)
