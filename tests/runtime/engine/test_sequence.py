import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.engine.messages import State
from tenuto.runtime.engine.sequence import TRANSITIONS, Happening, IllegalTransition, Sequence

HAPPENINGS = st.sampled_from(Happening)


@given(st.lists(HAPPENINGS))
def test_whatever_happens_follows_the_table_or_raises_and_changes_nothing(happenings: list[Happening]) -> None:
    sequence = Sequence("s", "alice")
    for happening in happenings:
        before = sequence.state
        if (before, happening) in TRANSITIONS:
            sequence.on(happening)
            assert sequence.state is TRANSITIONS[before, happening]
        else:
            with pytest.raises(IllegalTransition, match=f"{happening} while {before}"):
                sequence.on(happening)
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


@given(HAPPENINGS)
def test_nothing_happens_to_a_released_sequence(happening: Happening) -> None:
    with pytest.raises(IllegalTransition):
        Sequence("s", "alice", state=State.RELEASED).on(happening)


@given(HAPPENINGS)
def test_a_failed_sequence_can_only_be_released(happening: Happening) -> None:
    assert ((State.FAILED, happening) in TRANSITIONS) == (happening is Happening.RELEASE)


def test_no_round_begins_while_one_is_open() -> None:
    assert [before for before, happening in TRANSITIONS if happening is Happening.SUBMIT] == [State.PAUSED]
