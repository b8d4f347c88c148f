"""What can change in the store: plain facts, of which a commit is a sequence that is kept as a whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.sessions.items import Item
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import CallRecord, LegEnd, LegRecord, PauseRecord, RunRecord
from tenuto.sessions.session import Session


@dataclass(frozen=True, slots=True)
class SaveSession:
    """Keep the session's own row as it is when the commit is asked for, without its items and ledgers."""

    session: Session


@dataclass(frozen=True, slots=True)
class AddItems:
    """Add items at the end; `start` is how many the session had before."""

    uid: str
    start: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class CutItems:
    """Keep the first `keep` items. The tokens of the others go with them, and the ends of the legs that ended there,
    but where the others come back (`MovePlaces`)."""

    uid: str
    keep: int
    ends: bool = True


@dataclass(frozen=True, slots=True)
class MovePlaces:
    """The items from `since` on stand by so many places further: so do the places of legs among them."""

    uid: str
    since: int
    by: int


@dataclass(frozen=True, slots=True)
class MarkTurns:
    """Let requests find the session by the ends of its turns, of those that end among its items from `since` on.

    It comes after the changes of the items in its commit. A mark goes when its item is cut.
    """

    session: Session
    since: int


@dataclass(frozen=True, slots=True)
class AddSpans:
    """Add the tokens of the items from `start` on, one span an item, to one ledger."""

    uid: str
    fingerprint: str
    start: int
    spans: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AddLedger:
    """Add the tokens of all items of a ledger that the store does not have. Nobody changes this ledger any more."""

    uid: str
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class CutSpans:
    """Keep the tokens of the first `keep` items, in one ledger or (fingerprint None) in all of them."""

    uid: str
    fingerprint: str | None
    keep: int


@dataclass(frozen=True, slots=True)
class SaveRun:
    """Keep a run as it is now."""

    run: RunRecord


@dataclass(frozen=True, slots=True)
class BeginLeg:
    """Keep a leg that begins."""

    leg: LegRecord


@dataclass(frozen=True, slots=True)
class AddTold:
    """Keep what a leg has told from its event number `start` on, in a stored form; it takes the place of what was kept
    from there before."""

    leg_id: str
    session_uid: str
    start: int
    events: str


@dataclass(frozen=True, slots=True)
class SaveProgress:
    """Keep where a leg stands that goes on after a crash. What it sampled before that is no open round's any more."""

    leg_id: str
    session_uid: str
    progress: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddSampled:
    """Keep what an open round of a leg has sampled from its token number `start` on; it takes the place of what was
    kept from there before. `logprobs` is their stored form, where they are told."""

    leg_id: str
    session_uid: str
    start: int
    tokens: tuple[int, ...]
    logprobs: str | None = None


@dataclass(frozen=True, slots=True)
class EndLeg:
    """Keep how the leg of a run that is under way has ended, if there is one, and nothing more of its open round."""

    end: LegEnd


@dataclass(frozen=True, slots=True)
class DeleteLeg:
    """Forget a leg; what was said in it stays in its session."""

    id: str


@dataclass(frozen=True, slots=True)
class SaveCall:
    """Keep a call as it is now; run, round and position say which."""

    call: CallRecord


@dataclass(frozen=True, slots=True)
class SavePause:
    """Keep an approval or question as it is now."""

    pause: PauseRecord


@dataclass(frozen=True, slots=True)
class SaveKey:
    """Let an Idempotency-Key stand for a run. It goes when the run goes, or at `expires_at`."""

    principal: str
    key: str
    run_id: str
    body_digest: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class DeleteSession:
    """Delete a session with its items, ledgers, runs, calls, pauses, notes, and the keys of its runs."""

    uid: str


@dataclass(frozen=True, slots=True)
class PutNote:
    """Write a note. `scope` is a session's uid or `principal:NAME`."""

    scope: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Describe:
    """Keep what a session's client keeps with it, which `SaveSession` writes for a new session alone."""

    uid: str
    metadata: Mapping[str, str]


Change = (
    SaveSession
    | AddItems
    | CutItems
    | MovePlaces
    | MarkTurns
    | AddSpans
    | AddLedger
    | CutSpans
    | SaveRun
    | BeginLeg
    | AddTold
    | SaveProgress
    | AddSampled
    | EndLeg
    | DeleteLeg
    | SaveCall
    | SavePause
    | SaveKey
    | DeleteSession
    | PutNote
    | Describe
)

Beside = SaveRun | BeginLeg | AddTold | SaveProgress | AddSampled | EndLeg | DeleteLeg | SaveCall | SavePause | SaveKey
"""What is kept with a session and is no part of it."""


def whole(session: Session) -> list[Change]:
    """The changes that write a session which the store does not have yet."""
    changes: list[Change] = [SaveSession(session)]
    if session.items:
        changes += [AddItems(session.uid, 0, tuple(session.items)), MarkTurns(session, 0)]
    changes += [PutNote(session.uid, key, text) for key, text in session.notes.items()]
    changes += [AddLedger(session.uid, ledger.copy()) for ledger in session.ledgers.values() if ledger.items]
    return changes
