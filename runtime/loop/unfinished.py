"""Where a leg stands that goes on after a crash, beside what it has told: in a stored form, and read again. Pure.

It is kept with each round's start and with its end, so that one of the two is always the last thing that happened.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from tenuto.pipelines.backend import TokenLogprob
from tenuto.runtime.loop.events import StopReason
from tenuto.runtime.loop.models import Model
from tenuto.sessions.changes import AddSampled
from tenuto.sessions.items import Item, item_from_json, item_to_json
from tenuto.sessions.records import LegRecord


@dataclass(frozen=True, slots=True)
class RoundStart:
    """How the open round began: the ledger that it goes on from, which covers all items of the session, and the tokens
    that open the model's turn. `weights` says whose round it is."""

    fingerprint: str
    opening: tuple[int, ...]
    computed_before: int
    weights: str


@dataclass(slots=True)
class Progress:
    """What a leg knows besides its session, its run's figures and what it has told."""

    last_round: StopReason | None = None
    """Why the next round is the last, once that is so."""
    seen: set[str] = field(default_factory=set)
    """Names the calls of each round with what they gave."""
    start: RoundStart | None = None
    """Of the round that is open."""

    def dump(self, usage: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The stored form, with the run's figures and what the answer has beside its events."""
        return {
            "usage": usage,
            "end": end,
            "last_round": self.last_round,
            "seen": sorted(self.seen),
            "start": None if self.start is None else _START.dump_python(self.start, mode="json"),
        }

    @staticmethod
    def load(value: dict[str, Any]) -> "Progress":
        """Read what `dump` gave, or `at_begin`. Raises ValueError where another version has kept it in another form."""
        last, start = value.get("last_round"), value.get("start")
        return Progress(
            None if last is None else StopReason(last),
            set(value.get("seen", ())),
            None if start is None else _START.validate_python(start),
        )


def at_begin(then: Sequence[Item] = ()) -> dict[str, Any]:
    """What is kept of a leg that begins; `then` are the items that follow the results of its calls."""
    return {"then": [item_to_json(item) for item in then]} if then else {}


def items_then(value: dict[str, Any]) -> tuple[Item, ...]:
    """The items of `at_begin`."""
    return tuple(map(item_from_json, value.get("then", ())))


def weights_of(model: Model) -> str:
    """Names a model's weights as far as its files say what they are."""
    weights = model.backend.weights
    named = f"{weights.form} {weights.architecture} {weights.quantisation} {weights.parameters} {weights.nbytes}"
    return f"{named} {weights.adapter}" if weights.adapter else named


@dataclass(slots=True, eq=False)
class OpenTokens:
    """What an open round has sampled, and how much of that is kept. `logprobs` is empty, or has one for each token."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    kept: int = 0

    def to_keep(self, leg: LegRecord) -> list[AddSampled]:
        """What has been sampled since that was kept last."""
        tokens = tuple(self.tokens[self.kept :])
        if not tokens:
            return []
        logprobs = _dumped(self.logprobs[self.kept :])
        return [AddSampled(leg.id, leg.session_uid, self.kept, tokens, logprobs)]


@dataclass(frozen=True, slots=True)
class Said:
    """What an open round had sampled and told when its process ended: its tokens with their logprobs, if these are
    told, and the ids of its client's calls in order."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    call_ids: tuple[str, ...] = ()


def logprobs_from(pieces: Sequence[str]) -> tuple[TokenLogprob, ...]:
    """Read the stored form of logprobs."""
    entries = [entry for piece in pieces for entry in json.loads(piece)]
    return tuple(
        TokenLogprob(token, logprob, tuple((other, chance) for other, chance in top)) for token, logprob, top in entries
    )


def _dumped(logprobs: Sequence[TokenLogprob]) -> str | None:
    if not logprobs:
        return None
    return json.dumps([[one.token, one.logprob, one.top] for one in logprobs], separators=(",", ":"))


_START: TypeAdapter[RoundStart] = TypeAdapter(RoundStart)
