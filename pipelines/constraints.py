"""Grammars that hold calls and answers to their schemas, and their course in one round. Built on llguidance."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from cachetools import LRUCache
from llguidance import LLMatcher
from llguidance.numpy import fill_next_token_bitmask

from tenuto.errors import GenerationFailed, InvalidRequest
from tenuto.pipelines.backend import Bitmask
from tenuto.pipelines.base import Constraint, GrammarSource, ToolChoice
from tenuto.pipelines.formats.base import Format
from tenuto.pipelines.vocabulary import Vocabulary
from tenuto.sessions.items import JsonObject, ToolSpec

# Models are trained on JSON with these separators, and with free white space weak ones write blanks without end.
_SPACING = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}

# Beside these, `properties` does not say alone which members an object may have.
_OPEN_KEYWORDS = frozenset(
    {"$ref", "additionalProperties", "allOf", "anyOf", "dependentSchemas", "if", "oneOf", "patternProperties"}
    | {"unevaluatedProperties"}
)

_CACHE_BYTES = 16 << 20
_COMPILED_BYTES = 4 << 20
"""Of the grammars' texts; what is compiled takes several times as much."""
_LONGEST_FAULT = 500
_NOT_COMPILED = "the grammar cannot be compiled: "
_ANY_OBJECT: JsonObject = {"type": "object"}

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

    def source(
        self, tools: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool, answer: JsonObject | None = None
    ) -> GrammarSource | None:
        """What a round is held to, or None where nothing needs holding.

        Raises:
            InvalidRequest: a call is required and there is no tool, or the model has no way to call; or the answer's
                schema cannot be enforced, or not beside calls.
        """
        opener = self._form.opener
        if choice is ToolChoice.REQUIRED:
            if not tools or opener is None:
                what = "no tool to call" if opener else "no way to call tools"
                raise InvalidRequest(f"a tool call is required, and there is {what}", "tool_choice")
            return self._source(tools, choice, parallel)
        if answer is not None:
            return self._answer(tools if choice is ToolChoice.AUTO and opener else (), parallel, answer)
        if not tools or opener is None or opener.id is None:
            return None
        if choice is ToolChoice.NONE:
            return GrammarSource(banned=frozenset({opener.id}))
        return self._source(tools, choice, parallel)

    def unenforced(self, tools: Sequence[ToolSpec], *, parallel: bool) -> tuple[str, ...] | None:
        """What `source` says so of where calls may be made; None where it is not at hand, and `source` compiles."""
        opener = self._form.opener
        if not tools or opener is None or opener.id is None:
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
        return _GrammarConstraint(source, start, self._vocabulary, self._size)

    def _answer(self, tools: Sequence[ToolSpec], parallel: bool, schema: JsonObject) -> GrammarSource:
        """A turn whose text is one JSON value, or which calls instead where there are tools."""
        opener = self._form.opener
        if tools and opener is not None and opener.id is None:
            text = f"this model writes {opener.text} as text, so that calls and a response format cannot go together"
            raise InvalidRequest(f"{text}; leave out the tools, or the format", "response_format")
        try:
            rule = _json_rule(_closed(schema) if schema.get("type") == "object" else schema, coerce_one_of=False)
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
        schemas = [self._schema(tool, faults) for tool in tools]
        names = [tool.name for tool in tools]
        source = self._assemble(names, schemas, choice, parallel, answer)
        try:
            self._compile(source.lark)
        except GenerationFailed as error:
            # Each alone compiles, all together are too much.
            faults.append(f"the schemas of these tools are not enforced: {error}")
            source = self._assemble(names, [_ANY_OBJECT] * len(tools), choice, parallel, answer)
        return replace(source, unenforced=tuple(faults))

    def _assemble(
        self, names: Sequence[str], schemas: Sequence[JsonObject], choice: ToolChoice, parallel: bool, answer: str
    ) -> GrammarSource:
        opener = self._form.opener
        rules = [f"arguments_{index}: {_json_rule(schema)}" for index, schema in enumerate(schemas)]
        if names:
            rules.append(f"call: {self._form.call_rule(names)}")
        if answer:
            body = f"answer | {self._form.calls_rule(parallel=parallel)}" if names else "answer"
            return GrammarSource(lark=_lark(self._form.turn_rule(body), [*rules, f"answer: {answer}"]))
        if choice is ToolChoice.AUTO and opener is not None:
            return GrammarSource(lark=_lark("call", rules), opener=opener.id, once=not parallel)
        return GrammarSource(lark=_lark(self._form.turn_rule(self._form.calls_rule(parallel=parallel)), rules))

    def _schema(self, tool: ToolSpec, faults: list[str]) -> JsonObject:
        """What the arguments of a tool are held to."""
        if tool.strict is False:
            return _ANY_OBJECT
        schema = _closed(tool.parameters) if tool.strict else {**tool.parameters, "type": "object"}
        lark = _lark("arguments_0", [f"arguments_0: {_json_rule(schema)}"])
        key = _digest(lark)
        with self._lock:
            fault = self._faults.get(key)
        if fault is None:
            fault = _first_line(self._matcher(lark).get_error())[:_LONGEST_FAULT]
            with self._lock:
                self._faults[key] = fault
        if fault:
            faults.append(f"the schema of {tool.name} is not enforced: {fault}")
            return _ANY_OBJECT
        return schema

    def _compile(self, lark: str) -> LLMatcher:
        """A matcher of one's own at the grammar's beginning."""
        key = _digest(lark)
        with self._lock:
            known = self._compiled.get(key)
        compiled = self._matcher(lark) if known is None else known[0]
        if known is None:
            if compiled.is_error():
                raise GenerationFailed(f"{_NOT_COMPILED}{_first_line(compiled.get_error())}")
            _keep(self._lock, self._compiled, key, (compiled, len(lark)))
        return compiled.deep_copy()

    def _matcher(self, lark: str) -> LLMatcher:
        return LLMatcher(self._grammar_tokenizer(), lark, log_level=0)


def _key(tools: Sequence[ToolSpec], choice: ToolChoice, parallel: bool, answer: str) -> bytes:
    schemas = [(tool.name, tool.strict, None if tool.strict is False else tool.parameters) for tool in tools]
    return _digest(json.dumps([choice.value, parallel, answer, schemas]))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _source_bytes(source: GrammarSource) -> int:
    return len(source.lark) + sum(map(len, source.unenforced)) + 1


def _keep(lock: threading.Lock, cache: LRUCache[bytes, T], key: bytes, value: T) -> None:
    """What is larger than the whole cache is made anew each time."""
    with lock, contextlib.suppress(ValueError):
        cache[key] = value


class _GrammarConstraint:
    """A grammar in the course of one round; implements Constraint. Engine thread only.

    Three states: free (no matcher yet, or none any more), held (a matcher is at work), and over, where nothing is left
    but to end the turn: after a grammar without an opener, and after one that comes once.
    """

    def __init__(
        self, source: GrammarSource, start: LLMatcher | None, vocabulary: Vocabulary, vocabulary_size: int
    ) -> None:
        self._source = source
        self._start = start
        self._stops = vocabulary.stops
        self._size = vocabulary_size
        self._over = False
        self._matcher = start.deep_copy() if start is not None and source.opener is None else None
        self._free = _all_but(source.banned, vocabulary_size) if source.banned else None
        self._only_stops = _only(vocabulary.stops, vocabulary_size)
        # llguidance writes whole rows of its own width; the model's logits may be wider.
        self._row = np.zeros((1, _words(vocabulary_size)), dtype=np.int32)

    def mask(self) -> Bitmask | None:
        """The tokens allowed next, valid until the next call; None where all are.

        Raises:
            GenerationFailed: the grammar has come to a place where nothing may follow.
        """
        if self._over:
            return self._only_stops
        if self._matcher is None:
            return self._free
        fill_next_token_bitmask(self._matcher, self._row)
        self._check(self._matcher)
        allowed: Bitmask = self._row.view(np.uint32)[0]
        if self._matcher.is_accepting():
            allowed |= self._only_stops
        if self._free is not None:
            allowed &= self._free
        if not allowed.any():
            raise GenerationFailed("the grammar allows no token here")
        return allowed

    def accept(self, token: int) -> None:
        """Go on by a token that has been sampled.

        Raises:
            GenerationFailed: the grammar does not allow it.
        """
        if self._matcher is None:
            if self._start is not None and token == self._source.opener and not self._over:
                self._matcher = self._start.deep_copy()
            return
        if token in self._stops and self._matcher.is_accepting():
            self._end()
            return
        self._matcher.consume_token(token)
        self._check(self._matcher)
        if self._matcher.is_stopped():
            self._end()

    def _end(self) -> None:
        self._matcher = None
        self._over = self._source.opener is None or self._source.once

    def _check(self, matcher: LLMatcher) -> None:
        if matcher.is_error():
            raise GenerationFailed(f"the grammar failed: {_first_line(matcher.get_error())}")


def _closed(schema: JsonObject) -> JsonObject:
    """A schema of type object; one that only names its properties allows no others."""
    closed = {**schema, "type": "object"}
    if not _OPEN_KEYWORDS.intersection(schema) and isinstance(schema.get("properties"), dict):
        closed["additionalProperties"] = False
    return closed


def _json_rule(schema: JsonObject, *, coerce_one_of: bool = True) -> str:
    # `oneOf` taken for `anyOf` serves calls, whose arguments are checked before they are made.
    return "%json " + json.dumps({**schema, "x-guidance": {**_SPACING, "coerce_one_of": coerce_one_of}})


def _lark(start: str, rules: Sequence[str]) -> str:
    # Where only one text may follow, llguidance would allow one way to spell it, which is not always the model's own:
    # a macro may reach beyond the text that is certain.
    return "\n".join(['%llguidance {"no_forcing": true}', f"start: {start}", *rules, ""])


def _first_line(error: str) -> str:
    return error.strip().partition("\n")[0]


def _words(size: int) -> int:
    return (size + 31) // 32


def _only(tokens: frozenset[int], size: int) -> Bitmask:
    mask = np.zeros(_words(size), dtype=np.uint32)
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << (token % 32))
    return mask


def _all_but(tokens: frozenset[int], size: int) -> Bitmask:
    return ~_only(tokens, size)
