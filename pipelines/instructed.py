"""A codec whose conversations begin with instructions that are no item of theirs, as their tools are none. Any thread.

The instructions stand before what the conversation's own first system message says, or in one of their own.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tenuto.pipelines.base import (
    TOOL_DIGITS,
    Codec,
    CodecInfo,
    Constraint,
    GrammarSource,
    Rendered,
    TextDecoder,
    ToolChoice,
)
from tenuto.pipelines.images import Piece
from tenuto.pipelines.reasoning_watch import ReasoningWatch
from tenuto.pipelines.template_variables import TemplateVariables
from tenuto.pipelines.turns import TurnParser
from tenuto.sessions.items import Attachment, Item, JsonObject, SystemItem, ToolSpec

_NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InstructedCodec:
    """Implements Codec over another one."""

    codec: Codec
    instructions: str

    @property
    def info(self) -> CodecInfo:
        """That of the other one."""
        return self.codec.info

    @property
    def family(self) -> str:
        """That of the other one."""
        return self.codec.family

    @property
    def looks_back(self) -> str | None:
        """As for the other one."""
        return self.codec.looks_back

    def fingerprint(self, tools: Sequence[ToolSpec]) -> str:
        """Names the instructions too; the digits of the tools stay."""
        name = self.codec.fingerprint(tools)
        told = hashlib.sha256(f"{name} {self.instructions}".encode("utf-8", "surrogatepass")).hexdigest()
        return name[:TOOL_DIGITS] + told[: len(name) - TOOL_DIGITS]

    def with_variables(self, variables: TemplateVariables) -> Codec:
        """The other one with these variables, and the same instructions."""
        return replace(self, codec=self.codec.with_variables(variables))

    def has_at_hand(self, variables: TemplateVariables) -> bool:
        """As for the other one."""
        return self.codec.has_at_hand(variables)

    def suffix(
        self,
        before: Sequence[Item],
        new: Sequence[Item],
        tools: Sequence[ToolSpec],
        *,
        ended: bool,
        said: Mapping[int, Sequence[int]] = _NOTHING,
    ) -> Rendered:
        """Render what is new; the instructions are part of the first item's tokens. Raises TemplateFailed."""
        first = next(iter((*before[:1], *new[:1])), None)
        if isinstance(first, SystemItem):
            merged = SystemItem(f"{self.instructions}\n\n{first.text}")
            if before:
                return self.codec.suffix((merged, *before[1:]), new, tools, ended=ended, said=said)
            return self.codec.suffix((), (merged, *new[1:]), tools, ended=ended, said=said)
        lead = SystemItem(self.instructions)
        if before:
            return self.codec.suffix((lead, *before), new, tools, ended=ended, said=said)
        moved = {place + 1: tokens for place, tokens in said.items()}
        rendered = self.codec.suffix((), (lead, *new), tools, ended=ended, said=moved)
        own, *rest = rendered.items
        if not rest:
            return Rendered((), (*own, *rendered.opening))
        return Rendered(((*own, *rest[0]), *rest[1:]), rendered.opening)

    def unseen(self, attachment: Attachment) -> str | None:
        """As for the other one."""
        return self.codec.unseen(attachment)

    def pieces(self, items: Sequence[Item]) -> tuple[Piece, ...]:
        """As for the other one."""
        return self.codec.pieces(items)

    def tokenize(self, text: str) -> list[int]:
        """As for the other one."""
        return self.codec.tokenize(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """As for the other one."""
        return self.codec.detokenize(tokens)

    def piece(self, token: int) -> bytes:
        """As for the other one."""
        return self.codec.piece(token)

    def decoder(self) -> TextDecoder:
        """As for the other one."""
        return self.codec.decoder()

    def parser(self, *, calls: bool, tools: Sequence[ToolSpec] = ()) -> TurnParser:
        """As for the other one."""
        return self.codec.parser(calls=calls, tools=tools)

    def grammar(
        self, tools: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool, answer: JsonObject | None = None
    ) -> GrammarSource | None:
        """As for the other one."""
        return self.codec.grammar(tools, choice, parallel=parallel, answer=answer)

    def unenforced(self, tools: Sequence[ToolSpec], *, parallel: bool) -> tuple[str, ...] | None:
        """As for the other one."""
        return self.codec.unenforced(tools, parallel=parallel)

    def begun_with(self, text: str) -> tuple[int, ...]:
        """As for the other one."""
        return self.codec.begun_with(text)

    def bounded(self, source: GrammarSource | None, tokens: int, *, calls: bool) -> GrammarSource | None:
        """As for the other one."""
        return self.codec.bounded(source, tokens, calls=calls)

    def reasoning_watch(self) -> ReasoningWatch | None:
        """As for the other one."""
        return self.codec.reasoning_watch()

    def constraint(self, source: GrammarSource) -> Constraint:
        """As for the other one."""
        return self.codec.constraint(source)
