"""Three hundred operations in any order, and nothing is left of them."""

import random
from typing import Any

import pytest

from tenuto.runtime.engine.messages import Failed, Stopped
from tests.runtime.engine.rig import Make, Reading, Rig, assert_nothing_is_left

OPERATIONS = 300
RULES = [
    {"user_contains": "step!", "text": "it fails", "fail": "forward", "fail_at": 1},
    {"user_contains": "sampler!", "text": "it fails", "fail": "sampler", "fail_at": 1},
]
TEXTS = ["Hello!", "The same beginning, one.", "The same beginning, two.", "long " * 30, "sampler!", "step!"]


class Client:
    """Asks for one thing after the other and keeps the rules: one open round a sequence."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.dice = random.Random(seed)
        self.rounds: dict[str, Reading] = {}
        self.tokens: dict[str, list[int]] = {}
        self.ended = 0

    async def act(self) -> None:
        name = f"s{self.dice.randrange(12)}"
        self._gather()
        match self.dice.choice(["submit", "submit", "submit", "resume", "resume", "cancel", "release", "wait"]):
            case "submit" if name not in self.rounds:
                self.tokens[name] = self.rig.prompt(self.dice.choice(TEXTS))
                self.rounds[name] = self.rig.begin(name, self.tokens[name], **self._options())
            case "resume" if name not in self.rounds and self.rig.engine.holds(name, len(self.tokens.get(name, []))):
                offset, new = len(self.tokens[name]), self.rig.result("go on")
                self.tokens[name] += new
                self.rounds[name] = self.rig.resume(name, offset, new, **self._options())
            case "cancel":
                self.rig.cancel(name)
            case "release":
                self.rig.engine.release(name)
            case "wait" if self.rounds:
                await self.dice.choice(list(self.rounds.values())).ended()

    def _options(self) -> dict[str, Any]:
        return {"max_tokens": self.dice.choice([1, 5, 100]), "stop": self.dice.choice([(), ("go",)])}

    def _gather(self) -> None:
        for name, round in list(self.rounds.items()):
            match round.end:
                case Stopped():
                    self.tokens[name] = [*self.tokens[name], *round.tokens]
                    assert round.end.usage.sampled == len(round.tokens)
                    assert round.end.usage.prompt + len(round.tokens) == len(self.tokens[name])
                case Failed():
                    self.tokens.pop(name)
                case None:
                    continue
            del self.rounds[name]
            self.ended += 1


@pytest.mark.parametrize("seed", range(4))
async def test_after_any_operations_nothing_is_left(make: Make, seed: int) -> None:
    rig = make(
        RULES,
        slots=3,
        batch_tokens=16,
        host=1500,
        prefill_chunk=8,
        remembered_tokens=9 * 100,
        can_truncate=seed % 2 == 0,
    )
    client = Client(rig, seed)
    for _ in range(OPERATIONS):
        await client.act()
    for round in client.rounds.values():
        await round.ended()
    for number in range(12):
        rig.engine.release(f"s{number}")
    await rig.idle()
    assert client.ended > OPERATIONS / 10
    assert_nothing_is_left(rig)
    assert sum(usage.computed for usage in rig.spent) == rig.engine.status.computed
    assert sum(usage.sampled for usage in rig.spent) == rig.engine.status.sampled
    assert [rig.backend.held(slot) for slot in range(3)] == [[], [], []]
    assert rig.engine.is_alive
