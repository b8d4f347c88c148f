from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tenuto.runtime.engine.scheduler import (
    EVERY,
    Admission,
    Budget,
    Candidate,
    Decode,
    Prefill,
    Share,
    admit,
    in_turn,
    plan,
)
from tenuto.sessions.priority import Priority

INTERACTIVE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND

BUDGETS = st.builds(Budget, tokens=st.integers(1, 40), chunk=st.integers(1, 40))
URGENCY = st.sampled_from(Priority)
DECODING = st.lists(URGENCY, max_size=12).map(
    lambda urgencies: [Decode(f"d{at}", urgency) for at, urgency in enumerate(urgencies)]
)
PREFILLING = st.lists(st.tuples(st.integers(1, 100), URGENCY, st.booleans()), max_size=12).map(
    lambda kinds: [Prefill(f"p{at}", *kind) for at, kind in enumerate(kinds)]
)
TURNS = st.integers(0, 1000)


def prefills(pending: Sequence[int]) -> list[Prefill]:
    return [Prefill(f"p{number}", tokens) for number, tokens in enumerate(pending)]


# Who is fed.


@given(DECODING, PREFILLING, BUDGETS, TURNS)
def test_a_step_never_carries_more_than_its_budget(
    decoding: list[Decode], prefilling: list[Prefill], budget: Budget, turn: int
) -> None:
    shares = plan(decoding, prefilling, budget, turn)
    assert sum(share.tokens for share in shares) <= budget.tokens
    if any(share.id.startswith("d") for share in shares):
        assert sum(share.tokens for share in shares if share.id.startswith("p")) <= budget.chunk


@given(DECODING, PREFILLING, BUDGETS, TURNS)
def test_everybody_is_fed_at_most_once_and_never_more_than_there_is(
    decoding: list[Decode], prefilling: list[Prefill], budget: Budget, turn: int
) -> None:
    shares = plan(decoding, prefilling, budget, turn)
    assert len({share.id for share in shares}) == len(shares)
    limits = {one.id: 1 for one in decoding} | {entry.id: entry.pending for entry in prefilling}
    assert all(1 <= share.tokens <= limits[share.id] for share in shares)


@given(DECODING, PREFILLING, BUDGETS, TURNS)
def test_no_budget_is_left_while_somebody_could_use_it(
    decoding: list[Decode], prefilling: list[Prefill], budget: Budget, turn: int
) -> None:
    shares = plan(decoding, prefilling, budget, turn)
    decoded = sum(share.id.startswith("d") for share in shares)
    fed = sum(share.tokens for share in shares) - decoded
    room = budget.tokens - decoded
    pending = sum(entry.pending for entry in prefilling)
    assert fed == min(pending, room if decoded == 0 else min(room, budget.chunk))
    assert decoded == min(len(decoding), budget.tokens) or prefilling


@given(DECODING, PREFILLING, BUDGETS, TURNS)
def test_interactive_sequences_have_what_they_can_use_before_the_background_has_any(
    decoding: list[Decode], prefilling: list[Prefill], budget: Budget, turn: int
) -> None:
    is_due = turn // 2 % EVERY == EVERY - 1
    first, second = (BACKGROUND, INTERACTIVE) if is_due else (INTERACTIVE, BACKGROUND)
    shares = {share.id: share.tokens for share in plan(decoding, prefilling, budget, turn)}
    for kind in (
        [(one.id, 1, one.priority) for one in decoding],
        [(one.id, one.pending, one.priority) for one in prefilling],
    ):
        if any(id in shares for id, _, priority in kind if priority is second):
            assert all(shares.get(id) == wanted for id, wanted, priority in kind if priority is first)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=4), st.lists(st.integers(1, 500), max_size=4), BUDGETS)
def test_resumes_are_fed_first_and_leave_new_prompts_half_of_it(
    resumes: list[int], new: list[int], budget: Budget
) -> None:
    short = [Prefill(f"r{at}", pending, resumes=True) for at, pending in enumerate(resumes)]
    prompts = [Prefill(f"n{at}", pending) for at, pending in enumerate(new)]
    shares = plan([], [*prompts, *short], budget, 0)
    of_resumes = sum(share.tokens for share in shares if share.id.startswith("r"))
    of_new = sum(share.tokens for share in shares if share.id.startswith("n"))
    if budget.tokens > 1:
        assert of_resumes >= min(sum(resumes), budget.tokens // 2)
        assert of_new >= min(sum(new), budget.tokens // 2)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(8, 60))
def test_prefill_is_shared_evenly(pending: list[int], tokens: int) -> None:
    shares = {share.id: share.tokens for share in plan([], prefills(pending), Budget(tokens, tokens), 0)}
    assert set(shares) == {entry.id for entry in prefills(pending)}
    cut = [shares[entry.id] for entry in prefills(pending) if shares[entry.id] < entry.pending]
    assert not cut or max(shares.values()) - min(cut) <= 1


@dataclass
class Line:
    """Those who are fed, as the engine keeps them: whoever was served stands behind those that were not."""

    ids: list[str]
    waited: dict[str, int] = field(default_factory=dict)

    def served(self, shares: Sequence[Share]) -> None:
        fed = [share.id for share in shares if share.id in self.ids]
        self.ids = [id for id in self.ids if id not in fed] + fed
        self.waited = {id: 0 if id in fed else self.waited.get(id, 0) + 1 for id in self.ids}


@given(
    budget=st.builds(Budget, tokens=st.integers(1, 4), chunk=st.integers(1, 4)),
    first=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    events=st.lists(st.sampled_from(["decoder", "prefill", "read", "stop", *["nothing"] * 6]), max_size=20),
    start=TURNS,
    background=st.sets(st.integers(0, 9)),
    resumes=st.sets(st.integers(0, 9)),
)
def test_everybody_is_fed_in_a_bounded_number_of_steps_whoever_comes_and_goes(
    budget: Budget,
    first: tuple[int, int],
    events: list[str],
    start: int,
    background: set[int],
    resumes: set[int],
) -> None:
    decoding, prefilling = Line([f"d{at}" for at in range(first[0])]), Line([f"p{at}" for at in range(first[1])])
    most = 8

    def urgency(id: str) -> Priority:
        return BACKGROUND if int(id[-1]) in background else INTERACTIVE

    for turn, happening in enumerate([*events, *["nothing"] * 300], start):
        members = len(decoding.ids) + len(prefilling.ids)
        if happening == "decoder" and members < most:
            decoding.ids.append(f"d{turn}")
        elif happening == "prefill" and members < most:
            prefilling.ids.append(f"p{turn}")
        elif happening == "read" and prefilling.ids:
            decoding.ids.append(prefilling.ids.pop(0))
        elif happening == "stop" and decoding.ids:
            decoding.ids.pop()
        shares = plan(
            [Decode(id, urgency(id)) for id in decoding.ids],
            [Prefill(id, 50, urgency(id), int(id[-1]) in resumes) for id in prefilling.ids],
            budget,
            turn,
        )
        decoding.served(shares)
        prefilling.served(shares)
        # Of each kind at least one is served in every second step, and one of each priority in every cycle of turns.
        assert all(waited <= 2 * EVERY * most for waited in (*decoding.waited.values(), *prefilling.waited.values()))


@pytest.mark.parametrize(("tokens", "chunk"), [(0, 1), (1, 0), (-1, 5)])
def test_a_budget_that_serves_nobody_is_refused(tokens: int, chunk: int) -> None:
    with pytest.raises(ValueError, match="serves nobody"):
        Budget(tokens, chunk)


# Who is admitted.

CANDIDATES = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=10).map(
    lambda kinds: [Candidate(f"w{at}", resident, not resident and moves) for at, (resident, moves) in enumerate(kinds)]
)
PAUSED = st.integers(0, 4).map(lambda count: [f"idle{number}" for number in range(count)])


PRINCIPALS = st.sampled_from("abc")
ARRIVALS = st.lists(PRINCIPALS, max_size=12).map(
    lambda principals: [Candidate(f"w{at}", False, principal=who) for at, who in enumerate(principals)]
)
AT_WORK = st.dictionaries(st.tuples(URGENCY, PRINCIPALS), st.integers(0, 4))


@given(ARRIVALS, AT_WORK)
def test_a_principals_own_rounds_are_admitted_first_come_first_served(
    waiting: list[Candidate], working: dict[tuple[Priority, str], int]
) -> None:
    turns = in_turn(waiting, working)
    assert sorted(turns, key=waiting.index) == waiting
    for who in "abc":
        assert [one for one in turns if one.principal == who] == [one for one in waiting if one.principal == who]


@given(ARRIVALS, AT_WORK)
def test_nobody_is_admitted_before_somebody_who_has_fewer_rounds(
    waiting: list[Candidate], working: dict[tuple[Priority, str], int]
) -> None:
    rounds = Counter(working)
    turns = in_turn(waiting, working)
    for at, candidate in enumerate(turns):
        assert all(rounds[INTERACTIVE, candidate.principal] <= rounds[INTERACTIVE, one.principal] for one in turns[at:])
        rounds[INTERACTIVE, candidate.principal] += 1


def test_a_newcomer_passes_those_who_have_much_already() -> None:
    waiting = [Candidate(f"a{number}", True, principal="a") for number in range(9)]
    turns = in_turn([*waiting, Candidate("b0", False, principal="b")], {(INTERACTIVE, "a"): 2})
    assert [one.id for one in turns[:2]] == ["b0", "a0"]


@given(CANDIDATES, st.integers(0, 4), PAUSED)
@example([Candidate("a", False, True), Candidate("b", False, True), Candidate("c", False)], 3, [])
def test_admission_keeps_to_the_order(waiting: list[Candidate], free: int, paused: list[str]) -> None:
    admissions = admit(waiting, free, paused)
    order = [candidate.id for candidate in waiting]
    ids = [admission.id for admission in admissions]
    assert ids == sorted(set(ids), key=order.index)
    evicted = {admission.evict for admission in admissions}
    # Residents pass; of the others nobody passes one that came before.
    strangers = [candidate.id for candidate in waiting if not candidate.resident]
    assert [id for id in strangers if id in ids] == strangers[: sum(id in ids for id in strangers)]
    assert all(c.id in ids or c.id in evicted for c in waiting if c.resident)


@given(CANDIDATES, st.integers(0, 4), PAUSED)
def test_at_most_one_cache_is_moved_and_no_slot_is_taken_twice(
    waiting: list[Candidate], free: int, paused: list[str]
) -> None:
    admissions = admit(waiting, free, paused)
    kinds = {candidate.id: candidate for candidate in waiting}
    moves = [each for each in admissions if each.evict is not None or kinds[each.id].moves]
    assert len(moves) <= 1
    from_free = sum(each.evict is None and not kinds[each.id].resident for each in admissions)
    assert from_free <= free


@given(CANDIDATES, st.integers(0, 4), PAUSED)
def test_a_victim_is_idle_or_came_later_and_is_not_admitted(
    waiting: list[Candidate], free: int, paused: list[str]
) -> None:
    admissions = admit(waiting, free, paused)
    order = [candidate.id for candidate in waiting]
    for admission in admissions:
        if admission.evict is None:
            continue
        assert admission.evict not in {each.id for each in admissions}
        if paused:
            assert admission.evict == paused[0]
        else:
            assert order.index(admission.evict) > order.index(admission.id)
            assert waiting[order.index(admission.evict)].resident


@given(CANDIDATES, st.integers(0, 4), PAUSED)
def test_the_first_in_line_is_admitted_where_a_slot_can_be_had(
    waiting: list[Candidate], free: int, paused: list[str]
) -> None:
    assume(waiting)
    can_be_had = waiting[0].resident or free or paused or any(candidate.resident for candidate in waiting[1:])
    assert bool([each for each in admit(waiting, free, paused) if each.id == waiting[0].id]) == bool(can_be_had)


def test_a_swap_is_all_that_a_step_moves() -> None:
    waiting = [Candidate("a", False, True), Candidate("b", False, True), Candidate("c", True), Candidate("d", False)]
    assert admit(waiting, 0, ["old", "new"]) == [Admission("a", "old"), Admission("c")]


@given(
    slots=st.integers(1, 4),
    strangers=st.integers(1, 5),
    rounds=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    data=st.data(),
)
def test_everybody_is_admitted_in_the_end_although_others_keep_resuming(
    slots: int, strangers: int, rounds: list[int], data: st.DataObject
) -> None:
    """Holders of slots stop and resume at once, for ever; those without a slot must get one all the same."""
    holders = {f"h{number}": 0 for number in range(slots)}  # id -> steps left of its round; 0: waits or is idle
    waiting = [*holders, *(f"s{number}" for number in range(strangers))]
    admitted: set[str] = set()
    bound = (strangers + 1) * (max(rounds) + 1) + slots
    for step in range(bound):
        candidates = [Candidate(id, id in holders, data.draw(st.booleans())) for id in waiting]
        idle = [id for id in holders if id not in waiting and holders[id] == 0]
        for admission in admit(candidates, slots - len(holders), idle):
            if admission.evict is not None:
                del holders[admission.evict]
            waiting.remove(admission.id)
            holders[admission.id] = rounds[step % len(rounds)]
            admitted.add(admission.id)
        for id in [id for id, left in holders.items() if left]:
            holders[id] -= 1
            if holders[id] == 0:
                waiting.append(id)
    assert {f"s{number}" for number in range(strangers)} <= admitted


@given(
    flood=st.integers(1, 5),
    waiting=st.integers(1, 4),
    principals=st.integers(1, 3),
    free=st.lists(st.integers(0, 2), min_size=1, max_size=6).filter(any),
)
def test_a_flood_of_interactive_rounds_keeps_nobody_in_the_background_waiting_for_ever(
    flood: int, waiting: int, principals: int, free: list[int]
) -> None:
    line = [Candidate(f"b{at}", False, priority=BACKGROUND, principal=f"p{at % principals}") for at in range(waiting)]
    admitted: list[Candidate] = []
    passed, came = 0, 0
    for step in range((EVERY + 1) * waiting * len(free) * 2):
        while sum(one.priority is INTERACTIVE for one in line) < flood:
            line.append(Candidate(f"i{came}", False, principal=f"p{came % principals}"))
            came += 1
        for admission in admit(in_turn(line, {}, passed), free[step % len(free)], []):
            one = next(one for one in line if one.id == admission.id)
            line.remove(one)
            admitted.append(one)
            left = any(each.priority is BACKGROUND for each in line)
            passed = passed + 1 if left and one.priority is INTERACTIVE else 0
    # What several slots that come free at once let in is decided before any of it is counted.
    bound = waiting * (EVERY + 2)
    assert sum(one.priority is BACKGROUND for one in admitted[:bound]) == waiting
    first = next(at for at, one in enumerate(admitted) if one.priority is BACKGROUND)
    assert first >= EVERY - 1 or flood < max(free)


def test_interactive_rounds_come_first_until_enough_of_them_have_passed_the_background() -> None:
    line = [Candidate("b", False, priority=BACKGROUND), *(Candidate(f"i{at}", False) for at in range(3))]
    assert [one.id for one in in_turn(line, {}, EVERY - 2)] == ["i0", "i1", "i2", "b"]
    assert [one.id for one in in_turn(line, {}, EVERY - 1)] == ["b", "i0", "i1", "i2"]


def test_what_a_principal_does_in_the_background_does_not_count_against_its_interactive_rounds() -> None:
    line = [Candidate("b", False, principal="b"), Candidate("a", False, principal="a")]
    assert in_turn(line, {(BACKGROUND, "b"): 9}) == line


def test_a_round_in_the_background_gives_its_slot_to_an_interactive_one_when_nobody_idle_has_one() -> None:
    interactive, background = Candidate("i", False), Candidate("b", False, priority=BACKGROUND)
    assert admit([interactive], 0, ["idle"], ["at work"]) == [Admission("i", "idle")]
    assert admit([interactive], 0, [], ["at work", "too"]) == [Admission("i", "at work")]
    assert admit([interactive, Candidate("r", True)], 0, [], ["at work"]) == [Admission("i", "r")]
    assert admit([background], 0, [], ["at work"]) == []


def test_who_waits_in_the_background_for_a_slot_keeps_nobody_from_one_that_the_background_gives_up() -> None:
    interactive, background = Candidate("i", False), Candidate("b", False, priority=BACKGROUND)
    assert admit([background, interactive], 0, [], ["at work"]) == [Admission("i", "at work")]
    assert admit([background, interactive], 1, [], ["at work"]) == [Admission("b"), Admission("i", "at work")]
    assert admit([background, interactive], 0, [], []) == []
