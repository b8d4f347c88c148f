"""Those who decode are slowed by others' prompts as much as a setting says, and no more."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.runtime.engine.bystanders import LEAST, Bystanders

CHUNK = 256


class Machine:
    """Steps take what they take: so much each, so much a sequence that decodes, and so much a token of prefill."""

    def __init__(self, step_s: float, row_s: float, token_s: float, noise: float = 0.0, seed: int = 0) -> None:
        self.step_s, self.row_s, self.token_s, self.noise = step_s, row_s, token_s, noise
        self.extra_s = 0.0
        self._chance = random.Random(seed)

    def takes(self, decoding: int, prefill: int) -> float:
        busy = 8.0 if self.noise and self._chance.random() < 0.02 else 1.0
        return self.exactly(decoding, prefill) * busy * (1 + self._chance.uniform(-self.noise, self.noise))

    def exactly(self, decoding: int, prefill: int) -> float:
        return self.step_s + decoding * self.row_s + (prefill * self.token_s + self.extra_s if prefill else 0.0)

    def run(self, bystanders: Bystanders, decoding: int, steps: int) -> list[int]:
        """What each of so many steps carried of a prompt that never ends."""
        carried = []
        for _ in range(steps):
            carried.append(bystanders.chunk(decoding))
            bystanders.stepped(decoding, carried[-1], self.takes(decoding, carried[-1]))
        return carried


@settings(max_examples=200)
@given(
    st.floats(0.0005, 0.1),
    st.floats(0.0, 0.01),
    st.floats(0.00001, 0.01),
    st.floats(0.0, 3.0),
    st.integers(1, 32),
    st.floats(1.3, 8),
    st.sampled_from([0.0, 0.05]),
    st.integers(0, 9),
)
def test_steps_take_as_many_times_as_long_as_they_may_on_average(
    step_s: float, row_s: float, token_s: float, extra: float, decoding: int, most: float, noise: float, seed: int
) -> None:
    """`extra`: how many times as long as a step alone it takes to feed a prompt at all."""
    machine = Machine(step_s, row_s, token_s, noise, seed)
    machine.extra_s = extra * (step_s + decoding * row_s)
    bystanders = Bystanders(most, CHUNK)
    machine.run(bystanders, decoding, 200)
    alone = step_s + decoding * row_s
    carried = machine.run(bystanders, decoding, 2000)
    average = sum(machine.exactly(decoding, tokens) for tokens in carried) / len(carried) / alone
    cheapest = machine.exactly(decoding, LEAST) / alone
    # Where a small piece takes as long as many steps, it is fed all the same, now and then.
    assert average <= 1 + (most - 1) * (1.4 if noise else 1.05) or cheapest > 1 + 16 * (most - 1)
    # What may be used is used.
    assert max(carried) == CHUNK or average >= 1 + (most - 1) * (0.4 if noise else 0.7)


def test_it_follows_a_machine_that_becomes_slower_and_faster() -> None:
    bystanders, machine = Bystanders(2.0, CHUNK), Machine(0.01, 0.0, 0.0001)
    assert max(machine.run(bystanders, 4, 100)[-2:]) == pytest.approx(100, abs=1)
    machine.token_s = 0.0002
    assert max(machine.run(bystanders, 4, 100)[-2:]) == pytest.approx(50, abs=1)
    machine.token_s, machine.step_s = 0.0001, 0.02
    assert max(machine.run(bystanders, 4, 1000)[-2:]) == pytest.approx(200, abs=3)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=300), st.floats(1.1, 4))
def test_a_prompt_goes_on_in_a_bounded_number_of_steps(decoding: list[int], most: float) -> None:
    bystanders, machine = Bystanders(most, CHUNK), Machine(0.01, 0.001, 0.01)
    carried = [machine.run(bystanders, each, 1)[0] for each in decoding]
    assert all(any(carried[at : at + 17]) for at in range(len(carried) - 16))
    assert all(tokens == 0 or LEAST <= tokens <= CHUNK for tokens in carried)


def test_a_prompt_goes_on_although_no_step_can_be_measured() -> None:
    bystanders = Bystanders(2.0, CHUNK)
    assert [bystanders.chunk(3) > 0 for _ in range(6)] == [False, True] * 3


def test_without_a_bound_or_without_bystanders_a_step_carries_all_that_it_may() -> None:
    machine = Machine(0.01, 0.0, 0.01)
    assert set(machine.run(Bystanders(None, CHUNK), 4, 50)) == {CHUNK}
    assert set(machine.run(Bystanders(2.0, CHUNK), 0, 50)) == {CHUNK}


def test_how_much_slower_steps_with_prefill_are_is_told() -> None:
    machine, bystanders = Machine(0.01, 0.0, 0.0001), Bystanders(1.5, CHUNK)
    assert bystanders.slowdown == 0
    machine.run(bystanders, 4, 200)
    assert bystanders.slowdown == pytest.approx(1.5, abs=0.05)


def test_steps_that_take_no_time_bound_nothing() -> None:
    assert Machine(0.0, 0.0, 0.0).run(Bystanders(2.0, CHUNK), 2, 50)[-1] == CHUNK
