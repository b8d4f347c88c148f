"""The codec of every model that has a tokeniser, a chat template and a tool-call format.

A pipeline brings a Tokenizer; everything above it is the same for all of them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from tenuto.pipelines.base import CodecInfo, Constraint, GrammarSource, Rendered, TextDecoder, ToolChoice
from tenuto.pipelines.chat_template import ChatTemplate, Part
from tenuto.pipelines.constraints import Grammars
from tenuto.pipelines.content import ContentTokenizer, StreamDecoder
from tenuto.pipelines.formats import format_of
from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.placeholders import Placeholder
from tenuto.pipelines.turns import TurnParser
from tenuto.pipelines.vocabulary import vocabulary_of
from tenuto.sessions.items import AssistantItem, Item, JsonObject, ToolSpec

_NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})

_KNOWN_CHARACTERS = 4 << 20
_KNOWN_FINGERPRINTS = 256
"""A fingerprint is asked for some times in each request, mostly for the same tools."""


class Tokenizer(Protocol):
    """A vocabulary and how text becomes its tokens. Immutable, safe for any thread."""

    @property
    def vocabulary(self) -> int:
        """How many entries the model's logits have."""

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Every end-of-generation id."""

    @property
    def control_tokens(self) -> frozenset[int]:
        """The ids of type control (and unknown, unused)."""

    @property
    def user_defined(self) -> Mapping[str, int]:
        """Text and id of each user-defined entry."""

    @property
    def bos(self) -> int | None:
        """The id to put before everything, where the model wants one that its template does not write."""

    @property
    def text_bos(self) -> int | None:
        """The id to put before a text that no template has rendered, where the model wants one."""

    @property
    def special_texts(self) -> Mapping[str, str]:
        """What templates expect: `bos_token`, `eos_token` and so on, as text."""

    def template_tokens(self, text: str) -> list[int]:
        """Tokenise template text: control and user-defined entries are recognised; nothing is added around it."""

    def plain_tokens(self, text: str) -> list[int]:
        """Tokenise text without recognising control entries; user-defined ones may still be; nothing is added."""

    def piece(self, token: int) -> bytes:
        """The bytes of an entry, control entries as their text."""

    def grammar_tokenizer(self) -> Any:
        """The llguidance.LLTokenizer of this vocabulary; built at the first call and kept."""


class TemplateCodec:
    """Implements Codec over a tokeniser and the text of a chat template. Safe for any thread.

    Raises:
        ModelLoadFailed: the template is no Jinja template.
    """

    def __init__(self, model: str, tokenizer: Tokenizer, template: str) -> None:
        self._tokenizer = tokenizer
        pieces = tuple(tokenizer.piece(token) for token in range(tokenizer.vocabulary))
        self._vocabulary = vocabulary_of(
            pieces, tokenizer.stop_tokens, tokenizer.control_tokens, tokenizer.user_defined
        )
        self._identity = self._vocabulary.identity()
        self._fingerprints: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], str]] = {}
        self._known_characters = 0
        self._content = ContentTokenizer(tokenizer.plain_tokens, self._vocabulary)
        stop_texts = [pieces[token].decode("utf-8", "replace") for token in sorted(tokenizer.stop_tokens)]
        self._template = ChatTemplate(template, tokenizer.special_texts, stop_texts)
        call, opening = self._template.call(), self._template.opening()
        self._format = format_of(Surroundings(template, opening, call, self._vocabulary))
        self._grammars = Grammars(tokenizer.grammar_tokenizer, self._vocabulary, tokenizer.vocabulary, self._format)
        self._info = CodecInfo(
            model=model,
            vocabulary=tokenizer.vocabulary,
            stop_tokens=tokenizer.stop_tokens,
            control_tokens=self._vocabulary.reserved,
            bos=tokenizer.text_bos,
            longest_piece=max(map(len, pieces)),
            template=template,
            reasons=self._format.reasons,
        )

    @property
    def info(self) -> CodecInfo:
        """Facts that do not change."""
        return self._info

    def fingerprint(self, tools: Sequence[ToolSpec]) -> str:
        """Names what a ledger's tokens depend on: tokeniser, template and tool block. 32 hexadecimal digits."""
        key = tuple(map(id, tools))
        known = self._fingerprints.get(key)
        if known is None:
            tool_json = self._template.tool_json(tools)
            if len(self._fingerprints) >= _KNOWN_FINGERPRINTS or self._known_characters > _KNOWN_CHARACTERS:
                self._fingerprints.clear()
                self._known_characters = 0
            # The tools are held with it, so that no other one gets their ids.
            known = self._fingerprints[key] = (tuple(tools), self._fingerprint(tool_json))
            self._known_characters += len(tool_json)
        return known[1]

    def _fingerprint(self, tool_json: str) -> str:
        digest = hashlib.sha256(self._identity)
        for text in (self._template.text, tool_json):
            part = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.hexdigest()[:32]

    @property
    def looks_back(self) -> str | None:
        """Why the whole conversation has to be rendered for what is new in it; None where a short stand-in will do."""
        return self._template.looks_back

    def suffix(
        self,
        before: Sequence[Item],
        new: Sequence[Item],
        tools: Sequence[ToolSpec],
        *,
        ended: bool,
        said: Mapping[int, Sequence[int]] = _NOTHING,
    ) -> Rendered:
        """Render only what is new. `ended`: the tokens before it end with the end-of-turn token.

        `said`: tokens that the model has sampled elsewhere for some of the new items, by their places, each after what
        opened its turn. They stay as they are where such a turn is opened in the same way here.

        Raises:
            TemplateFailed: the chat template refused the conversation, or has no place for a new item.
        """
        suffix = self._template.suffix(before, new, tools)
        invitation = self._template.invitation(tools) if said else ""
        spans: list[tuple[int, ...]] = []
        ended = ended and bool(before) and _can_end(before[-1])
        for place, parts in enumerate(suffix.spans):
            sampled = tuple(said.get(place, ()))
            if sampled and self._opens(self._template.opening_of(suffix, place, invitation), sampled, ended=ended):
                spans.append(sampled)
                ended = sampled[-1] in self._vocabulary.stops and _can_end(new[place])
                continue
            spans.append(tuple(self._span_tokens(parts, ended=ended, first=not before and not place)))
            ended = False
        return Rendered(items=tuple(spans[:-1]), opening=spans[-1])

    def tokenize(self, text: str) -> list[int]:
        """Text as content: no control and no marker token comes of it."""
        return self._content.tokens(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens included."""
        pieces = self._vocabulary.pieces
        return b"".join(pieces[token] for token in tokens).decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """The bytes of a token, which may be part of a character; control tokens as their text."""
        return self._vocabulary.pieces[token]

    def decoder(self) -> TextDecoder:
        """A fresh decoder."""
        return StreamDecoder(self._vocabulary)

    def parser(self, *, calls: bool) -> TurnParser:
        """A fresh parser of one turn; without `calls` a call is text, and reasoning is still told apart."""
        return self._format.parser(calls=calls)

    def grammar(
        self, tools: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool, answer: JsonObject | None = None
    ) -> GrammarSource | None:
        """What a round is held to, or None where nothing needs holding.

        Tools that are not `strict`, and those whose schema cannot be compiled, are held to any JSON object. With the
        schema of an `answer`, the text of a turn that does not call is one JSON value that is valid by it.

        Raises:
            InvalidRequest: a call is required and there is no tool, or the model has no way to call; or the answer's
                schema cannot be enforced, or not beside calls.
        """
        return self._grammars.source(tools, choice, parallel=parallel, answer=answer)

    def unenforced(self, tools: Sequence[ToolSpec], *, parallel: bool) -> tuple[str, ...] | None:
        """What `grammar` says so of where calls may be made; None where it is not at hand, and `grammar` compiles."""
        return self._grammars.unenforced(tools, parallel=parallel)

    def constraint(self, source: GrammarSource) -> Constraint:
        """Compile a source."""
        return self._grammars.constraint(source)

    def _part_tokens(self, parts: Sequence[Part]) -> list[int]:
        tokens: list[int] = []
        for part in parts:
            if isinstance(part, Placeholder):
                tokens += self._content.tokens(part.content)
            else:
                tokens += self._tokenizer.template_tokens(part)
        return tokens

    def _span_tokens(self, parts: Sequence[Part], *, ended: bool, first: bool = False) -> list[int]:
        tokens = self._part_tokens(parts)
        if first:
            return self._with_bos(tokens)
        return self._after_stop(tokens) if ended else tokens

    def _opens(self, opening: Sequence[Part], sampled: tuple[int, ...], *, ended: bool) -> bool:
        tokens = self._span_tokens(opening, ended=ended)
        return sampled[: len(tokens)] == tuple(tokens)

    def _with_bos(self, tokens: list[int]) -> list[int]:
        bos = self._tokenizer.bos
        return tokens if bos is None or tokens[:1] == [bos] else [bos, *tokens]

    def _after_stop(self, tokens: list[int]) -> list[int]:
        """Leave out the end-of-turn token that the template writes where the model has sampled one itself."""
        stops = self._vocabulary.stops
        place = next((place for place, token in enumerate(tokens) if token in stops), -1)
        return tokens[place + 1 :]


def _can_end(item: Item) -> bool:
    """Whether the model can have ended its turn with this item itself."""
    return isinstance(item, AssistantItem) and not item.incomplete
