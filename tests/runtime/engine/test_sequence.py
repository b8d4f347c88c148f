import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.engine.messages import State
from tenuto.runtime.engine.sequence import TRANSITIONS, IllegalTransition, Sequence, SequenceTrigger

TRIGGERS = st.sampled_from(SequenceTrigger)


@given(st.lists(TRIGGERS))
def test_whatever_happens_follows_the_table_or_raises_and_changes_nothing(triggers: list[SequenceTrigger]) -> None:
    sequence = Sequence("s", "alice")
    for trigger in triggers:
        before = sequence.state
        if (before, trigger) in TRANSITIONS:
            sequence.on(trigger)
            assert sequence.state is TRANSITIONS[before, trigger]
        else:
            with pytest.raises(IllegalTransition, match=f"{trigger} while {before}"):
                sequence.on(trigger)
            assert sequence.state is before


def test_every_state_can_be_reached_from_the_first_and_from_every_state_the_end() -> None:
    def reached(start: State) -> set[State]:
        found = {start}
        while True:
            further = {after for (before, _), after in TRANSITIONS.items() if before in found}
            if further <= found:
                return found
            found |= further

    assert reached(Sequence("s", "alice").state) == set(State)
    assert all(State.RELEASED in reached(state) for state in State)


@given(TRIGGERS)
def test_nothing_happens_to_a_released_sequence(trigger: SequenceTrigger) -> None:
    with pytest.raises(IllegalTransition):
        Sequence("s", "alice", state=State.RELEASED).on(trigger)


@given(TRIGGERS)
def test_a_failed_sequence_can_only_be_released(trigger: SequenceTrigger) -> None:
    assert ((State.FAILED, trigger) in TRANSITIONS) == (trigger is SequenceTrigger.RELEASE)


def test_no_round_begins_while_one_is_open() -> None:
    assert [before for before, trigger in TRANSITIONS if trigger is SequenceTrigger.SUBMIT] == [State.PAUSED]
