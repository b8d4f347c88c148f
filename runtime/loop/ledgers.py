"""A session's tokens for one codec and tool block: which ledger, what is not in it yet, and how it grows."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.pipelines.base import Codec, Rendered
from tenuto.sessions.changes import AddSpans, Change, CutSpans
from tenuto.sessions.items import AssistantItem, Item, ToolSpec
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.session import Session

KEPT_LEDGERS = 4
"""A session that changes its tools or its model keeps so many ledgers; the oldest goes first."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is to read, before any of it is kept: the ledger's tokens, then what is new, then the opening."""

    fingerprint: str
    kept: int
    """Items of the session whose tokens the ledger has."""
    tokens: tuple[int, ...]
    spans: tuple[tuple[int, ...], ...]
    opening: tuple[int, ...]
    had: int
    """How many of the ledger's tokens had a cache when the sequence last stopped: all but a last sampled one."""

    @property
    def total(self) -> int:
        """Its length in tokens."""
        return len(self.tokens) + sum(map(len, self.spans)) + len(self.opening)

    def whole(self) -> tuple[int, ...]:
        """All tokens in order."""
        return (*self.tokens, *(token for span in self.spans for token in span), *self.opening)


def prompt(codec: Codec, tools: Sequence[ToolSpec], ledger: Ledger | None, keep: int, items: Sequence[Item]) -> Prompt:
    """Render what the ledger does not have of `items`, of which the first `keep` are the session's own.

    Nothing is changed. Raises TemplateFailed.
    """
    fingerprint = codec.fingerprint(tools)
    covered = 0 if ledger is None else min(ledger.items, keep)
    held: tuple[int, ...] = ()
    if ledger is not None:
        held = tuple(ledger.tokens if covered == ledger.items else ledger.tokens[: ledger.offsets[covered]])
    ended = bool(held) and held[-1] in codec.info.stop_tokens
    rendered: Rendered = codec.suffix(items[:covered], items[covered:], tools, ended=ended)
    sampled_last = covered > 0 and isinstance(items[covered - 1], AssistantItem)
    return Prompt(fingerprint, covered, held, rendered.items, rendered.opening, had=len(held) - sampled_last)


def extend(session: Session, prompt: Prompt) -> list[Change]:
    """Let the session's ledger cover what the prompt rendered, and give the changes that keep it."""
    changes: list[Change] = []
    ledger = session.ledgers.get(prompt.fingerprint)
    if ledger is None:
        for oldest in list(session.ledgers)[: max(len(session.ledgers) - KEPT_LEDGERS + 1, 0)]:
            del session.ledgers[oldest]
            changes.append(CutSpans(session.uid, oldest, 0))
        ledger = session.ledgers[prompt.fingerprint] = Ledger(prompt.fingerprint)
    assert ledger.items == prompt.kept, "a prompt is kept before the ledger changes again"
    for span in prompt.spans:
        ledger.append(span)
    if prompt.spans:
        changes.append(AddSpans(session.uid, prompt.fingerprint, prompt.kept, prompt.spans))
    return changes


def add_span(session: Session, fingerprint: str, span: tuple[int, ...]) -> Change:
    """Let the ledger cover one more item, whose tokens the model sampled."""
    ledger = session.ledgers[fingerprint]
    ledger.append(span)
    return AddSpans(session.uid, fingerprint, ledger.items - 1, (span,))
