"""A run's life: a table of (status, trigger) -> status, with what each row sets and clears. Pure.

Only `advanced` makes a run's record of another, so what is not in the table cannot happen to a run. docs/run-states.md
is drawn from it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tenuto.sessions.records import RunRecord, RunStatus


class RunTrigger(StrEnum):
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
    """Where a trigger leads, the fields that it must and may set, and those that it clears."""

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


TABLE: dict[tuple[RunStatus, RunTrigger], Row] = {
    (RunStatus.RUNNING, RunTrigger.PAUSE): Row(RunStatus.PAUSED, sets=_WAIT | _FIGURES),
    (RunStatus.PAUSED, RunTrigger.ANSWER): Row(RunStatus.RUNNING, sets=_REQUEST, clears=_WAIT),
    (RunStatus.PAUSED, RunTrigger.DECIDE): Row(RunStatus.RUNNING, clears=_WAIT),
    (RunStatus.RUNNING, RunTrigger.COMPLETE): _ends(RunStatus.COMPLETED),
    (RunStatus.RUNNING, RunTrigger.CUT): _ends(RunStatus.INCOMPLETE),
    (RunStatus.RUNNING, RunTrigger.CANCEL): _ends(RunStatus.CANCELLED),
    (RunStatus.RUNNING, RunTrigger.FAIL): _ends(RunStatus.FAILED),
    (RunStatus.RUNNING, RunTrigger.INTERRUPT): _ends(RunStatus.INTERRUPTED),
    (RunStatus.PAUSED, RunTrigger.CANCEL): _ends_waiting(RunStatus.CANCELLED),
    (RunStatus.PAUSED, RunTrigger.SUPERSEDE): _ends_waiting(RunStatus.SUPERSEDED),
    (RunStatus.PAUSED, RunTrigger.EXPIRE): _ends_waiting(RunStatus.EXPIRED),
}


class IllegalRunTransition(Exception):
    """A bug: what happened cannot happen to a run of this status. Nothing has changed."""


def possible(status: RunStatus, trigger: RunTrigger) -> bool:
    """Whether this can happen to a run of this status."""
    return (status, trigger) in TABLE


def advanced(record: RunRecord, trigger: RunTrigger, now: float, **fields: Any) -> RunRecord:
    """The run's record after a trigger at `now`, with what it sets.

    Raises:
        IllegalRunTransition: it cannot happen to this run, or it sets other fields.
    """
    row = TABLE.get((record.status, trigger))
    if row is None:
        raise IllegalRunTransition(f"{trigger} while {record.status}")
    if not _fits(row, fields.keys()):
        raise IllegalRunTransition(f"{trigger} sets {sorted(row.sets)} and may set {sorted(row.may_set)}: {[*fields]}")
    changed: dict[str, Any] = dict.fromkeys(row.clears) | fields
    return replace(record, status=row.to, updated_at=now, **changed)


def _fits(row: Row, fields: Collection[str]) -> bool:
    return row.sets <= set(fields) <= row.sets | row.may_set
