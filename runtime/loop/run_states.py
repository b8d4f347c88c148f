"""A run's life: a table of (status, happening) -> status, with what each row sets and clears. Pure.

Only `advanced` makes a run's record of another, so what is not in the table cannot happen to a run. docs/run-states.md
is drawn from it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tenuto.sessions.records import RunRecord, RunStatus


class Happening(StrEnum):
    """What can happen to a run."""

    PAUSE = "pause"
    """It waits: for its client's tools, or for a person."""
    ANSWER = "answer"
    """Its client has brought the results."""
    DECIDE = "decide"
    """A person has decided."""
    COMPLETE = "complete"
    CUT = "cut"
    """It has come to its limit."""
    CANCEL = "cancel"
    FAIL = "fail"
    INTERRUPT = "interrupt"
    """The server stops, or has crashed."""
    SUPERSEDE = "supersede"
    """Its client has gone on without bringing the results."""
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class Row:
    """Where a happening leads, the fields that it must and may set, and those that it clears."""

    to: RunStatus
    sets: frozenset[str] = frozenset()
    may_set: frozenset[str] = frozenset()
    clears: frozenset[str] = frozenset()


_WAIT = frozenset({"reason", "expires_at"})
_END = frozenset({"stop_reason"})
_FIGURES = frozenset({"usage", "answer"})
_ERROR = frozenset({"error"})
_REQUEST = frozenset({"model", "options", "input_digest"})


_OPEN = frozenset({"input_digest"})
"""Only of a run that is open it is asked whether a request repeats what began it."""


def _ends(to: RunStatus) -> Row:
    return Row(to, sets=_END, may_set=_FIGURES | _ERROR, clears=_OPEN)


def _ends_waiting(to: RunStatus) -> Row:
    return Row(to, sets=_END, clears=_WAIT | _OPEN)


TABLE: dict[tuple[RunStatus, Happening], Row] = {
    (RunStatus.RUNNING, Happening.PAUSE): Row(RunStatus.PAUSED, sets=_WAIT | _FIGURES),
    (RunStatus.PAUSED, Happening.ANSWER): Row(RunStatus.RUNNING, sets=_REQUEST, clears=_WAIT),
    (RunStatus.PAUSED, Happening.DECIDE): Row(RunStatus.RUNNING, clears=_WAIT),
    (RunStatus.RUNNING, Happening.COMPLETE): _ends(RunStatus.COMPLETED),
    (RunStatus.RUNNING, Happening.CUT): _ends(RunStatus.INCOMPLETE),
    (RunStatus.RUNNING, Happening.CANCEL): _ends(RunStatus.CANCELLED),
    (RunStatus.RUNNING, Happening.FAIL): _ends(RunStatus.FAILED),
    (RunStatus.RUNNING, Happening.INTERRUPT): _ends(RunStatus.INTERRUPTED),
    (RunStatus.PAUSED, Happening.CANCEL): _ends_waiting(RunStatus.CANCELLED),
    (RunStatus.PAUSED, Happening.SUPERSEDE): _ends_waiting(RunStatus.SUPERSEDED),
    (RunStatus.PAUSED, Happening.EXPIRE): _ends_waiting(RunStatus.EXPIRED),
}


class IllegalHappening(Exception):
    """A bug: what happened cannot happen to a run of this status. Nothing has changed."""


def possible(status: RunStatus, happening: Happening) -> bool:
    """Whether this can happen to a run of this status."""
    return (status, happening) in TABLE


def advanced(record: RunRecord, happening: Happening, now: float, **fields: Any) -> RunRecord:
    """The run's record after a happening at `now`, with what it sets.

    Raises:
        IllegalHappening: it cannot happen to this run, or it sets other fields.
    """
    row = TABLE.get((record.status, happening))
    if row is None:
        raise IllegalHappening(f"{happening} while {record.status}")
    if not _fits(row, fields.keys()):
        raise IllegalHappening(f"{happening} sets {sorted(row.sets)} and may set {sorted(row.may_set)}: {[*fields]}")
    changed: dict[str, Any] = dict.fromkeys(row.clears) | fields
    return replace(record, status=row.to, updated_at=now, **changed)


def _fits(row: Row, fields: Collection[str]) -> bool:
    return row.sets <= set(fields) <= row.sets | row.may_set
