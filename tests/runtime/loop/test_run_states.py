"""A run's table: what can happen to a run of which status, and what it sets and clears."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.loop.run_states import TABLE, IllegalRunTransition, RunTrigger, advanced, possible
from tenuto.sessions.records import PauseReason, RunRecord, RunStatus

VALUES: dict[str, Any] = {
    "reason": PauseReason.APPROVAL,
    "expires_at": 9.0,
    "stop_reason": "end",
    "usage": {"rounds": []},
    "answer": {"text": "x"},
    "error": "e",
    "model": "m2",
    "options": {"o": 1},
    "input_digest": "d2",
}
BEGUN = RunRecord("r", "u", "alice", "m", RunStatus.RUNNING, 1.0, 1.0, 0, {}, {})


@given(st.lists(st.sampled_from(RunTrigger), max_size=12))
def test_every_course_of_a_run_follows_the_table(course: list[RunTrigger]) -> None:
    """Whatever happens in whatever order: a run that waits says for what, one that does not says nothing of it, one
    that has ended says why, and nothing happens to it any more."""
    record = BEGUN
    for now, trigger in enumerate(course, 2):
        if not possible(record.status, trigger):
            with pytest.raises(IllegalRunTransition):
                advanced(record, trigger, now)
            continue
        row = TABLE[record.status, trigger]
        before, record = record, advanced(record, trigger, now, **{name: VALUES[name] for name in row.sets})
        assert (record.status, record.updated_at) == (row.to, now)
        changed = {f.name for f in fields(record) if getattr(record, f.name) != getattr(before, f.name)}
        assert changed <= row.sets | row.clears | {"status", "updated_at"}
        assert (record.reason is not None) == (record.status is RunStatus.PAUSED)
        assert (record.expires_at is not None) == (record.status is RunStatus.PAUSED)
        assert (record.stop_reason is not None) == (not record.status.is_open)
    if not record.status.is_open:
        assert not any(possible(record.status, trigger) for trigger in RunTrigger)


@pytest.mark.parametrize(("status", "trigger"), list(TABLE))
def test_a_happening_sets_what_it_must_and_nothing_that_it_may_not(status: RunStatus, trigger: RunTrigger) -> None:
    row = TABLE[status, trigger]
    waits: dict[str, Any] = {"reason": PauseReason.CLIENT_TOOL, "expires_at": 5.0} if status is RunStatus.PAUSED else {}
    record = RunRecord("r", "u", "alice", "m", status, 1.0, 1.0, 0, {}, {}, **waits)
    must = {name: VALUES[name] for name in row.sets}
    for name in row.sets:
        with pytest.raises(IllegalRunTransition):
            advanced(record, trigger, 2.0, **{key: value for key, value in must.items() if key != name})
    for name in VALUES.keys() - row.sets - row.may_set:
        with pytest.raises(IllegalRunTransition):
            advanced(record, trigger, 2.0, **must, **{name: VALUES[name]})
    advanced(record, trigger, 2.0, **must, **{name: VALUES[name] for name in row.may_set})


def test_every_run_can_come_to_an_end_from_wherever_it_is() -> None:
    for status in RunStatus:
        if status.is_open:
            assert any(not row.to.is_open for (before, _), row in TABLE.items() if before is status)
