"""The codec of every model that has a tokeniser, a chat template and a tool-call format.

A pipeline brings a Tokenizer; everything above it is the same for all of them.
"""

import copy
import hashlib
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tenuto.pipelines.base import (
    TOOL_DIGITS,
    CodecInfo,
    Constraint,
    GrammarSource,
    ReasoningBound,
    Rendered,
    TextDecoder,
    ToolChoice,
)
from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.pipelines.constraints import Grammars
from tenuto.pipelines.content import ContentTokenizer, StreamDecoder
from tenuto.pipelines.formats import Chosen, format_of
from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.images import ImageReader, Piece, ReadImages
from tenuto.pipelines.infill import InfillTokens, infill_tokens
from tenuto.pipelines.message_fields import TEXT_ONLY, Sight
from tenuto.pipelines.placeholders import Part, Placeholder
from tenuto.pipelines.reasoning_bound import BoundedReasoning
from tenuto.pipelines.reasoning_watch import ReasoningWatch
from tenuto.pipelines.template_variables import TemplateVariables
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.pipelines.turns import TurnParser
from tenuto.pipelines.variables_shown import shows
from tenuto.pipelines.varied import VariedCodecs
from tenuto.pipelines.vocabulary import vocabulary_of
from tenuto.sessions.items import AssistantItem, Attachment, Item, JsonObject, ToolSpec

_NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})

_KNOWN_CHARACTERS = 4 << 20
_KNOWN_FINGERPRINTS = 256
"""A fingerprint is asked for some times in each request, mostly for the same tools."""

_UNTRIED = "its template is rendered with variables that it has not been tried with"


class TemplateCodec:
    """Implements Codec over a tokeniser and the text of a chat template. Safe for any thread.

    `infill`: the tokens for that where they are known; else they are looked for by their texts.

    Raises:
        ModelLoadFailed: the template is no Jinja template.
    """

    def __init__(
        self,
        model: str,
        tokenizer: Tokenizer,
        template: str,
        tool_format: str | None = None,
        *,
        infill: InfillTokens | None = None,
        images: ImageReader | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._images = None if images is None else ReadImages(images)
        pieces = tuple(tokenizer.piece(token) for token in range(tokenizer.vocabulary))
        self._vocabulary = vocabulary_of(
            pieces, tokenizer.stop_tokens, tokenizer.control_tokens, tokenizer.user_defined
        )
        self._identity = self._vocabulary.identity() + (b"" if images is None else images.identity)
        self._fingerprints: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], str]] = {}
        self._known_characters = 0
        self._content = ContentTokenizer(tokenizer.plain_tokens, self._vocabulary)
        stop_texts = [pieces[token].decode("utf-8", "replace") for token in sorted(tokenizer.stop_tokens)]
        sight = TEXT_ONLY if self._images is None else Sight(self._images.hidden)
        self._template = ChatTemplate(template, tokenizer.special_texts, stop_texts, sight)
        self._images = self._images if self._template.takes_images else None
        self._call = self._template.call()
        self._untried: str | None = None
        self._shown = ""
        self._varied: VariedCodecs[TemplateCodec] = VariedCodecs()
        self._unvaried = weakref.ref(self)
        self._wanted_format = tool_format
        self.tool_format = self._chosen(self._template)
        """The format of the model's turns, and why it was taken."""
        self._plain = self._template = self._template.telling_tools() if self.tool_format.is_told else self._template
        self._format = self.tool_format.form
        self._grammars = Grammars(tokenizer.grammar_tokenizer, self._vocabulary, tokenizer.vocabulary, self._format)
        self._family = self.fingerprint(())
        self._info = CodecInfo(
            model=model,
            vocabulary=tokenizer.vocabulary,
            stop_tokens=tokenizer.stop_tokens,
            control_tokens=self._vocabulary.reserved,
            bos=tokenizer.text_bos,
            longest_piece=max(map(len, pieces)),
            template=template,
            modalities=frozenset({"text"} if self._images is None else {"text", "image"}),
            reasons=self._format.reasons,
            tool_format=f"{self._format.name}: {self.tool_format.why}",
            variables=self._template.reads,
            infill=infill or infill_tokens(self._vocabulary.markers),
        )

    @property
    def info(self) -> CodecInfo:
        """Facts that do not change."""
        return self._info

    @property
    def family(self) -> str:
        """Names tokeniser and template. 32 hexadecimal digits."""
        return self._family

    def with_variables(self, variables: TemplateVariables) -> "TemplateCodec":
        """The same codec, whose template is rendered with these variables too, those of them that it looks at."""
        variables = variables.only(self._plain.reads)
        if variables == self._template.variables:
            return self
        known = self._varied.get(variables) if variables else self._unvaried()
        if known is not None:
            return known
        made, is_tried = self._vary(variables), self._is_tried(variables)
        kept = self._varied.keep(variables, made, is_dear=is_tried)
        if is_tried and kept is made:
            self._varied.find_out(made._try)
        return kept

    def has_at_hand(self, variables: TemplateVariables) -> bool:
        """Whether `with_variables` takes no time."""
        variables = variables.only(self._plain.reads)
        return not variables or variables == self._template.variables or self._varied.get(variables) is not None

    def _vary(self, variables: TemplateVariables) -> "TemplateCodec":
        other = copy.copy(self)
        other._template = template = self._plain.with_variables(variables)
        other._fingerprints, other._known_characters = {}, 0
        other.tool_format = self._chosen(template)
        other._format = other.tool_format.form
        if other._format != self._format:
            other._grammars = Grammars(
                self._tokenizer.grammar_tokenizer, self._vocabulary, self._tokenizer.vocabulary, other._format
            )
        other._shown = variables.text if variables and shows(self._plain.written, template.written) else ""
        other._untried = _UNTRIED if variables else None
        return other

    def _is_tried(self, variables: TemplateVariables) -> bool:
        """Whether these are tried: what clients send is endless, and trying takes a while, so only values that the
        template itself names are."""
        words, values = self._plain.named.words, variables.values.values()
        is_named = all(isinstance(value, bool) or value is None or value in words for value in values)
        return bool(variables) and is_named and self._varied.may_try()

    def _try(self) -> None:
        self._template.looks_back  # noqa: B018 -- found out when it is read
        self._untried = None

    def _chosen(self, template: ChatTemplate) -> Chosen:
        """How turns are written. What opens a turn may depend on the template's variables."""
        surroundings = Surroundings(
            template.text, template.opening(), self._call, self._vocabulary, knows_tools=template.knows_tools
        )
        return format_of(surroundings, self._wanted_format)

    def fingerprint(self, tools: Sequence[ToolSpec]) -> str:
        """Names what a ledger's tokens depend on: tokeniser, template and tool block, and variables of the template's
        where these show in more than what opens a turn. 32 hexadecimal digits, of which the first 8 are the same for
        the same tools whatever the variables."""
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
        for text in (self._template.identity, tool_json):
            part = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(part))
            digest.update(part)
        name = digest.hexdigest()[:32]
        if not self._shown:
            return name
        shown = hashlib.sha256(f"{name} {self._shown}".encode("utf-8", "surrogatepass"))
        return name[:TOOL_DIGITS] + shown.hexdigest()[: len(name) - TOOL_DIGITS]

    @property
    def looks_back(self) -> str | None:
        """Why the whole conversation has to be rendered for what is new in it; None where a short stand-in will do."""
        return self._untried or self._template.looks_back

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
        suffix = self._template.suffix(before, new, tools, whole=self._untried is not None)
        # A turn that was opened with other variables stays what it was, or without any.
        invitations = {one.invitation(tools) for one in (self._template, self._plain)} if said else set()
        spans: list[tuple[int, ...]] = []
        ended = ended and bool(before) and _can_end(before[-1])
        for place, parts in enumerate(suffix.spans):
            sampled = tuple(said.get(place, ()))
            openings = (self._template.opening_of(suffix, place, invitation) for invitation in invitations)
            if sampled and any(self._opens(opening, sampled, ended=ended) for opening in openings):
                spans.append(sampled)
                ended = sampled[-1] in self._vocabulary.stops and _can_end(new[place])
                continue
            spans.append(tuple(self._span_tokens(parts, ended=ended, first=not before and not place)))
            ended = False
        return Rendered(items=tuple(spans[:-1]), opening=spans[-1])

    def unseen(self, attachment: Attachment) -> str | None:
        """Why the model does not see what a message carries, in words; None where it sees it. May take a moment."""
        return "the model reads text only" if self._images is None else self._images.hidden(attachment)

    def pieces(self, items: Sequence[Item]) -> tuple[Piece, ...]:
        """The pieces of all images that the model sees in these items. May take a moment."""
        return () if self._images is None else self._images.pieces(items)

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

    def parser(self, *, calls: bool, tools: Sequence[ToolSpec] = ()) -> TurnParser:
        """A fresh parser of one turn; without `calls` a call is text, and reasoning is still told apart."""
        return self._format.parser(calls=calls, tools=tools)

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

    def begun_with(self, text: str) -> tuple[int, ...]:
        """The tokens of a turn's beginning that somebody else has written, as what reads and holds it sees them."""
        marked = self._format.reasoning
        lead = self._tokenizer.template_tokens(marked.closer) if marked is not None and marked.begun else []
        return (*lead, *self._content.tokens(text))

    def bounded(self, source: GrammarSource | None, tokens: int, *, calls: bool) -> GrammarSource | None:
        """The same with a bound on the round's reasoning, where the model marks it. `calls`: it may go on to a call."""
        marked = self._format.reasoning
        if marked is None:
            return source
        lead = marked.to_any if calls else marked.to_text
        closing, leading = (tuple(self._tokenizer.template_tokens(text)) for text in (marked.closer, lead))
        back = marked.back if calls else frozenset[int]()
        bound = ReasoningBound(tokens, marked.opener, marked.closer, closing, marked.begun, leading, back)
        return replace(source or GrammarSource(), reasoning=bound)

    def reasoning_watch(self) -> ReasoningWatch | None:
        """What tells where a turn reasons, for a fresh turn; None where the model does not mark it."""
        marked = self._format.reasoning
        if marked is None:
            return None
        return ReasoningWatch(marked.opener, marked.closer, self._vocabulary, begun=marked.begun)

    def constraint(self, source: GrammarSource) -> Constraint:
        """Compile a source."""
        held = self._grammars.constraint(source)
        return held if source.reasoning is None else BoundedReasoning(source.reasoning, held, self._vocabulary)

    def _part_tokens(self, parts: Sequence[Part]) -> list[int]:
        tokens: list[int] = []
        for part in parts:
            if isinstance(part, Placeholder) and part.image is not None:
                assert self._images is not None, "a model that sees none has none rendered"
                tokens += self._images.tokens(part.image)
            elif isinstance(part, Placeholder):
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
