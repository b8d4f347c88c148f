"""What a run has told, packed."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.runtime.engine.messages import RoundUsage
from tenuto.runtime.loop.event_log import EventLog
from tenuto.runtime.loop.events import ReasoningAdded, RoundEnded, RunEvent, TextAdded, TextLogprob

pieces = st.text(max_size=5)
rounds = st.integers(1, 2)
events: st.SearchStrategy[RunEvent] = st.one_of(
    st.builds(TextAdded, rounds, pieces),
    st.builds(ReasoningAdded, rounds, pieces),
    st.builds(TextAdded, rounds, pieces, st.just((TextLogprob("a", b"a", -0.5),))),
    st.builds(RoundEnded, rounds, st.just(RoundUsage())),
)


@given(st.lists(st.one_of(events, st.just(None)), max_size=60))
def test_packed_events_are_read_as_they_were_told(told: list[RunEvent | None]) -> None:
    log, expected = EventLog(), list[RunEvent]()
    for event in told:
        if event is None:
            log.pack()
            continue
        log.append(event)
        expected.append(event)
        assert log.at(len(log)) == event
    assert [log.at(number) for number in range(1, len(log) + 1)] == expected


def test_a_long_answer_takes_little_more_room_than_its_text() -> None:
    log = EventLog()
    for number in range(100_000):
        log.append(TextAdded(1, f" {number % 1000}"))
    log.pack()
    assert len(log) == 100_000
    assert log.nbytes < 100_000 * 12
    assert log.at(50_001) == TextAdded(1, " 0")
