"""The model of the simulation: what it answers, and a backend that knows what it was fed and fails as it is told."""

import copy
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Pending, Row, RowFailed, Sampled, Snapshot
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.constraints import Grammars
from tenuto.pipelines.scripted import TEMPLATE, LooseCodec, Script, ScriptedBackend, ScriptedTokenizer
from tenuto.sessions.items import ToolSpec
from tests.simulation.world import Injected

TOKEN_S = 0.0001
"""What a token takes: slow enough that what is long is worth to be kept on disk."""

CALLS = {
    "write": ("b__put",),
    "look": ("b__get",),
    "ask": ("g__put",),
    "mine": ("mine",),
    "both": ("b__put", "mine"),
    "two": ("g__put", "b__put"),
    "again": ("g__put",),
}
"""What the model calls where the user says this and a word."""

MINE = ToolSpec(
    "mine",
    "The client's.",
    {"type": "object", "properties": {"w": {"type": "string"}}, "required": ["w"]},
    strict=False,
)


def rules() -> list[dict[str, Any]]:
    """What the model answers."""
    calls = [
        {
            "user_matches": f"^{say} (?P<word>.+)$",
            "calls": [{"name": name, "arguments": {"w": "${word}"}} for name in names],
        }
        for say, names in CALLS.items()
    ]
    return [
        *calls,
        {"user_matches": "^long (?P<word>.+)$", "text": "${word}" + " and on" * 6},
        {"user_matches": "^fail (?P<word>.+)$", "text": "it ${word}", "fail": "forward", "fail_at": 3},
        {"user_matches": "^sampler (?P<word>.+)$", "text": "it ${word}", "fail": "sampler", "fail_at": 3},
        {"user_matches": "^break (?P<word>.+)$", "text": "it ${word}", "raw": '<tool_call>{"w": 1}</tool_call>'},
        {"user_contains": "cannot be read", "raw": '<tool_call>{"w": 2}</tool_call>'},
        {"tool_matches": "^once more (?P<word>.+)$", "calls": [{"name": "g__put", "arguments": {"w": "x"}}]},
        {"tool_contains": "", "text": "told: ${tool}"},
    ]


@cache
def script(slots: int) -> Script:
    """The script for so many slots."""
    return Script.model_validate({"slots": slots, "cells": 8192, "batch_tokens": 2048, "rules": rules()})


def codec() -> TemplateCodec:
    """A codec that has compiled nothing yet: what one history had compiled would be at hand in the next."""
    fresh = copy.copy(_codec())
    known = fresh._grammars
    fresh._grammars = Grammars(known._grammar_tokenizer, known._vocabulary, known._size, known._form)
    return fresh


@cache
def _codec() -> TemplateCodec:
    """All else of it does not change, and takes long to make."""
    return LooseCodec("scripted", ScriptedTokenizer(), TEMPLATE)


def chained(before: int, token: int) -> int:
    """Names a sequence of tokens by the name of what stood before the last one, and that."""
    return hash((before, token))


class Aborted(BaseException):
    """The engine's process has ended, so that nothing in it goes on, and nothing is told."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        """Until another one is there."""


class FedBackend(ScriptedBackend):
    """The scripted backend. `seen` names every context after each sample: what the model has read, and its answer."""

    def __init__(
        self,
        slots: int,
        seen: set[int],
        fails: Callable[[str], bool],
        failed: Callable[[], None],
        aborts: Callable[[], float | None] = lambda: None,
    ) -> None:
        super().__init__(script(slots))
        self._seen, self._fails_now, self._failed, self._aborts = seen, fails, failed, aborts
        self._names: dict[int, tuple[int, int]] = {}

    def launch(self, rows: Sequence[Row]) -> Any:
        if self._fails_now("step"):
            raise Injected("a step that fails")
        time.sleep(TOKEN_S * sum(len(row.tokens) for row in rows))
        try:
            return super().launch(rows)
        except GenerationFailed:
            self._failed()
            raise

    def collect(self, pending: Pending) -> Sampled:
        if (seconds := self._aborts()) is not None:
            raise Aborted(seconds)
        rows: Sequence[Row] = pending.rows  # type: ignore[attr-defined]
        samples = [
            RowFailed(Injected("a sample that fails")) if row.sampler is not None and self._fails_now("sample") else one
            for row, one in zip(rows, super().collect(pending), strict=True)
        ]
        for row, sample in zip(rows, samples, strict=True):
            if isinstance(sample, int):
                self._seen.add(chained(self._name(row.slot), sample))
        return samples

    def fork(self, source: int, target: int, tokens: int) -> None:
        super().fork(source, target, tokens)
        self._names.pop(target, None)

    def truncate(self, slot: int, tokens: int) -> bool:
        self._names.pop(slot, None)
        return super().truncate(slot, tokens)

    def release(self, slot: int) -> None:
        self._names.pop(slot, None)
        super().release(slot)

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        self._names.pop(slot, None)
        super().restore(slot, snapshot)

    def _name(self, slot: int) -> int:
        tokens = self._slots[slot].tokens
        known, name = self._names.get(slot, (0, 0))
        for token in tokens[known:]:
            name = chained(name, token)
        self._names[slot] = len(tokens), name
        return name
