"""Places in the queue, and how many sequences are remembered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Overloaded
from tenuto.runtime.engine.messages import Residency, State
from tenuto.runtime.loop.engine_client import SEQUENCE_TOKENS, Place
from tests.runtime.engine.rig import Make, round_of


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_again(make: Make) -> None:
    rig = make(slots=2, queue=3)
    rig.backend.shut()
    rounds = [rig.begin(f"s{number}", rig.prompt("Hello!")) for number in range(3)]
    places = [rig.engine.reserve("alice") for _ in range(2)]
    with pytest.raises(Overloaded) as refused:
        rig.engine.reserve("alice")
    assert 1 <= refused.value.retry_after_s <= 60
    rig.backend.open()
    for round in rounds:
        await round.stopped()
    places += [rig.engine.reserve("alice") for _ in range(3)]
    with pytest.raises(Overloaded):
        rig.engine.reserve("alice")
    for place in places:
        place.give_back()
    assert rig.engine.places == 0


async def test_what_was_promised_is_never_refused(make: Make) -> None:
    rig = make(slots=1, queue=1)
    for number in range(5):
        await rig.begin(f"s{number}", rig.prompt("Hello!")).stopped()
    places = [rig.engine.reserve("alice") for _ in range(2)]
    rounds = [rig.begin(f"t{number}", rig.prompt("Hello!")) for number in range(4)]
    for round in rounds:
        await round.stopped()
        assert round.tokens == rig.answer("Hello!")
    for place in places:
        place.give_back()


async def test_a_place_is_given_back_once(make: Make) -> None:
    rig = make()
    place, other = rig.engine.reserve("alice"), rig.engine.reserve("alice")
    place.give_back()
    place.give_back()
    assert rig.engine.places == 1
    other.give_back()


async def test_a_round_takes_the_place_that_was_reserved_for_it(make: Make) -> None:
    rig = make()
    rig.backend.shut()
    place = rig.engine.reserve("alice")
    round = rig.read(rig.engine.submit("s", rig.prompt("Hello!"), round_of(), principal="alice", place=place))
    assert rig.engine.places == 1
    place.give_back()
    assert rig.engine.places == 1
    rig.backend.open()
    await round.stopped()
    assert rig.engine.places == 0


async def test_places_add_up(make: Make) -> None:
    rig = make(slots=2, queue=3)

    @given(st.lists(st.booleans(), max_size=30))
    def check(takes: list[bool]) -> None:
        taken: list[Place] = []
        for take in takes:
            if take and len(taken) == 5:
                with pytest.raises(Overloaded):
                    rig.engine.reserve("alice")
            elif take:
                taken.append(rig.engine.reserve("alice"))
            elif taken:
                taken.pop().give_back()
            assert rig.engine.places == len(taken)
        for place in taken:
            place.give_back()

    check()


async def test_only_so_many_tokens_are_remembered_and_the_oldest_sequences_are_forgotten(make: Make) -> None:
    prompts = [make().prompt(f"Hello {number}!") for number in range(10, 22)]
    each = SEQUENCE_TOKENS + len(prompts[0]) + len(make().answer("Hello 10!"))
    rig = make(slots=2, remembered_tokens=5 * each)
    lengths = {}
    for number, prompt in enumerate(prompts):
        round = rig.begin(f"s{number}", prompt)
        await round.stopped()
        lengths[number] = len(prompt) + len(round.tokens)
        assert sum(rig.engine.status.sequences.values()) <= 6
    assert [number for number in lengths if rig.engine.holds(f"s{number}", lengths[number])] == [7, 8, 9, 10, 11]
    await rig.idle()
    assert rig.count(State.PAUSED) <= 5
    host = rig.engine.status.cache_bytes[Residency.HOST]
    assert host <= 5 * 4 * max(lengths.values())


async def test_one_client_with_many_sequences_does_not_make_others_forgotten(make: Make) -> None:
    rig = make(slots=2, remembered_tokens=6 * 200)
    kept = rig.begin("mine", rig.prompt("Hello!"), principal="bob")
    await kept.stopped()
    length = len(rig.prompt("Hello!")) + len(kept.tokens)
    for number in range(30):
        await rig.begin(f"s{number}", rig.prompt(f"Hello {number}!")).stopped()
    assert rig.engine.holds("mine", length)


async def test_one_client_that_fills_the_queue_is_kept_from_what_another_was_refused(make: Make) -> None:
    rig = make(slots=1, queue=3)
    hers = [rig.engine.reserve("alice") for _ in range(4)]
    with pytest.raises(Overloaded):
        rig.engine.reserve("bob")
    hers.pop().give_back()
    with pytest.raises(Overloaded):
        rig.engine.reserve("alice")
    for place in (*hers, rig.engine.reserve("bob")):
        place.give_back()


async def test_open_rounds_are_never_forgotten(make: Make) -> None:
    rig = make(slots=2, remembered_tokens=1)
    rounds = [rig.begin(f"s{number}", rig.prompt(f"Hello {number}!")) for number in range(6)]
    for number, round in enumerate(rounds):
        await round.stopped()
        assert round.tokens == rig.answer(f"Hello {number}!")
