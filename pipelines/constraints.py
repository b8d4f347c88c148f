"""Grammars that hold calls and answers to their schemas, and their course in one round. Built on llguidance."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar

from cachetools import LRUCache
from llguidance import LLMatcher

from tenuto.errors import GenerationFailed, InvalidRequest
from tenuto.pipelines.base import Constraint, GrammarSource, ToolChoice
from tenuto.pipelines.formats.base import Format, TextOpeners
from tenuto.pipelines.formats.lark import json_rule
from tenuto.pipelines.grammar_course import GrammarConstraint, first_line
from tenuto.pipelines.text_openers import Openers, Pieces
from tenuto.pipelines.vocabulary import Vocabulary
from tenuto.sessions.items import JsonObject, ToolSpec

# Beside these, `properties` does not say alone which members an object may have.
_OPEN_KEYWORDS = frozenset(
    {"$ref", "additionalProperties", "allOf", "anyOf", "dependentSchemas", "if", "oneOf", "patternProperties"}
    | {"unevaluatedProperties"}
)

_CACHE_BYTES = 16 << 20
_COMPILED_BYTES = 4 << 20
"""Of the grammars' texts; what is compiled takes several times as much."""
_WATCHED = 64
_LONGEST_FAULT = 500
_NOT_COMPILED = "the grammar cannot be compiled: "
_ANY_OBJECT: JsonObject = {"type": "object"}

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Grammars:
    """Makes and compiles the grammars of one model. Safe for any thread."""

    def __init__(
        self, grammar_tokenizer: Callable[[], Any], vocabulary: Vocabulary, vocabulary_size: int, form: Format
    ) -> None:
        self._grammar_tokenizer = grammar_tokenizer
        self._vocabulary = vocabulary
        self._size = vocabulary_size
        self._form = form
        self._lock = threading.Lock()
        # By digest, and bounded by the bytes of the grammars: clients send schemas of megabytes.
        self._sources: LRUCache[bytes, GrammarSource] = LRUCache(_CACHE_BYTES, _source_bytes)
        self._faults: LRUCache[bytes, str] = LRUCache(1024)
        self._compiled: LRUCache[bytes, tuple[LLMatcher, int]] = LRUCache(_COMPILED_BYTES, itemgetter(1))
        self._openers: LRUCache[TextOpeners, Openers] = LRUCache(_WATCHED)
        self._pieces = Pieces(vocabulary)

    def source(
        self, tools: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool, answer: JsonObject | None = None
    ) -> GrammarSource | None:
        """What a round is held to, or None where nothing needs holding.

        Raises:
            InvalidRequest: a call is required and there is no tool, or the model has no way to call; or the answer's
                schema cannot be enforced, or not beside calls.
        """
        calls = self._form.calls
        if choice is ToolChoice.REQUIRED:
            if not tools or not calls:
                what = "no tool to call" if calls else "no way to call tools"
                raise InvalidRequest(f"a tool call is required, and there is {what}", "tool_choice")
            return self._source(tools, choice, parallel)
        if answer is not None:
            return self._answer(tools if choice is ToolChoice.AUTO and calls else (), parallel, answer)
        if not tools or not calls:
            return None
        if choice is ToolChoice.NONE:
            awaited = self._form.awaited([tool.name for tool in tools])
            return GrammarSource(banned=self._form.openers, texts=awaited.texts)
        return self._source(tools, choice, parallel)

    def unenforced(self, tools: Sequence[ToolSpec], *, parallel: bool) -> tuple[str, ...] | None:
        """What `source` says so of where calls may be made; None where it is not at hand, and `source` compiles."""
        if not tools or not self._form.calls:
            return ()
        key = _key(tools, ToolChoice.AUTO, parallel, "")
        with self._lock:
            known = self._sources.get(key)
        return None if known is None else known.unenforced

    def constraint(self, source: GrammarSource) -> Constraint:
        """A source's grammar at its beginning.

        Raises:
            GenerationFailed: the source is no grammar.
        """
        start = self._compile(source.lark) if source.lark else None
        tokenize = self._grammar_tokenizer().tokenize_bytes
        openers = None if source.texts is None else self._openers_of(source.texts)
        return GrammarConstraint(source, start, self._vocabulary, self._size, openers, tokenize)

    def _openers_of(self, texts: TextOpeners) -> Openers:
        with self._lock:
            known = self._openers.get(texts)
        if known is None:
            known = Openers(self._vocabulary, self._pieces, texts)
            _keep(self._lock, self._openers, texts, known)
        return known

    def _answer(self, tools: Sequence[ToolSpec], parallel: bool, schema: JsonObject) -> GrammarSource:
        """A turn whose text is one JSON value, or which calls instead where there are tools."""
        if tools and self._form.awaited([tool.name for tool in tools]).token is None:
            text = "this model begins its calls as text, so that calls and a response format cannot go together"
            raise InvalidRequest(f"{text}; leave out the tools, or the format", "response_format")
        try:
            rule = json_rule(_closed(schema) if schema.get("type") == "object" else schema, coerce_one_of=False)
            self._compile(_lark("answer", [f"answer: {rule}"]))
        except (GenerationFailed, RecursionError) as error:
            why = str(error).removeprefix(_NOT_COMPILED) or "it is nested too deeply"
            raise InvalidRequest(f"the schema of the answer cannot be enforced: {why}", "response_format") from error
        return self._source(tools, ToolChoice.AUTO, parallel, rule)

    def _source(self, tools: Sequence[ToolSpec], choice: ToolChoice, parallel: bool, answer: str = "") -> GrammarSource:
        key = _key(tools, choice, parallel, answer)
        with self._lock:
            known = self._sources.get(key)
        if known is None:
            known = self._build(tools, choice, parallel, answer)
            _keep(self._lock, self._sources, key, known)
        return known

    def _build(self, tools: Sequence[ToolSpec], choice: ToolChoice, parallel: bool, answer: str) -> GrammarSource:
        faults: list[str] = []
        held = {tool.name: self._schema(tool, faults) for tool in tools}
        source = self._assemble(held, choice, parallel, answer)
        if not self._compiles(source.lark):  # some schema is JSON's to hold, and not this format's
            held = {name: self._as_written(name, schema, faults) for name, schema in held.items()}
            source = self._assemble(held, choice, parallel, answer)
        try:
            self._compile(source.lark)
        except GenerationFailed as error:
            # Each alone compiles, all together are too much.
            faults.append(f"the schemas of these tools are not enforced: {error}")
            source = self._assemble(dict.fromkeys(held, _ANY_OBJECT), choice, parallel, answer)
        return replace(source, unenforced=(*faults, *source.unenforced))

    def _assemble(
        self, held: Mapping[str, JsonObject], choice: ToolChoice, parallel: bool, answer: str
    ) -> GrammarSource:
        form, rules = self._form, self._form.rules()
        if choice is ToolChoice.AUTO and held and not answer:
            awaited = form.awaited(list(held))
            lark = _lark(form.awaited_rule(rules, held, parallel=parallel), rules.lines)
            texts = awaited.texts
            alone = texts is not None and bool(texts.heads) and not texts.chained
            once = not parallel or (awaited.token is None and alone)
            return GrammarSource(lark, awaited.token, texts, once, form.strangers, tuple(rules.faults))
        body = form.calls_rule(rules, held, parallel=parallel) if held else ""
        if answer:
            rules.add("answer", answer)
            body = f"answer | {body}" if body else "answer"
        start = form.turn_rule(rules, body)
        return GrammarSource(lark=_lark(start, rules.lines), unenforced=tuple(rules.faults))

    def _schema(self, tool: ToolSpec, faults: list[str]) -> JsonObject:
        """What the arguments of a tool are held to."""
        if tool.strict is False:
            return _ANY_OBJECT
        schema = _closed(tool.parameters) if tool.strict else {**tool.parameters, "type": "object"}
        fault = self._fault(_lark("arguments_0", [f"arguments_0: {json_rule(schema)}"]))
        return self._unless(fault, tool.name, schema, faults)

    def _as_written(self, name: str, schema: JsonObject, faults: list[str]) -> JsonObject:
        """What the arguments of a tool are held to in the way that this format writes them."""
        rules = self._form.rules()
        call = self._form.calls_rule(rules, {name: schema}, parallel=False)
        return self._unless(self._fault(_lark(call, rules.lines)), name, schema, faults)

    @staticmethod
    def _unless(fault: str, name: str, schema: JsonObject, faults: list[str]) -> JsonObject:
        if fault:
            faults.append(f"the schema of {name} is not enforced: {fault}")
            return _ANY_OBJECT
        return schema

    def _fault(self, lark: str) -> str:
        """Why a grammar cannot be compiled; empty where it can."""
        key = _digest(lark)
        with self._lock:
            fault = self._faults.get(key)
        if fault is None:
            fault = first_line(self._matcher(lark).get_error())[:_LONGEST_FAULT]
            with self._lock:
                self._faults[key] = fault
        return fault

    def _compile(self, lark: str) -> LLMatcher:
        """A matcher of one's own at the grammar's beginning."""
        key = _digest(lark)
        with self._lock:
            known = self._compiled.get(key)
        compiled = self._matcher(lark) if known is None else known[0]
        if known is None:
            if compiled.is_error():
                raise GenerationFailed(f"{_NOT_COMPILED}{first_line(compiled.get_error())}")
            _keep(self._lock, self._compiled, key, (compiled, len(lark)))
        return compiled.deep_copy()

    def _compiles(self, lark: str) -> bool:
        try:
            self._compile(lark)
        except GenerationFailed:
            return False
        return True

    def _matcher(self, lark: str) -> LLMatcher:
        return LLMatcher(self._grammar_tokenizer(), lark, log_level=0)


def _key(tools: Sequence[ToolSpec], choice: ToolChoice, parallel: bool, answer: str) -> bytes:
    schemas = [(tool.name, tool.strict, None if tool.strict is False else tool.parameters) for tool in tools]
    return _digest(json.dumps([choice.value, parallel, answer, schemas]))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _source_bytes(source: GrammarSource) -> int:
    return len(source.lark) + sum(map(len, source.unenforced)) + 1


def _keep(lock: threading.Lock, cache: LRUCache[K, T], key: K, value: T) -> None:
    """What is larger than the whole cache is made anew each time."""
    with lock, contextlib.suppress(ValueError):
        cache[key] = value


def _closed(schema: JsonObject) -> JsonObject:
    """A schema of type object; one that only names its properties allows no others."""
    closed = {**schema, "type": "object"}
    if not _OPEN_KEYWORDS.intersection(schema) and isinstance(schema.get("properties"), dict):
        closed["additionalProperties"] = False
    return closed


def _lark(start: str, rules: Sequence[str]) -> str:
    # Where only one text may follow, llguidance would allow one way to spell it, which is not always the model's own:
    # a macro may reach beyond the text that is certain.
    return "\n".join(['%llguidance {"no_forcing": true}', f"start: {start}", *rules, ""])
