"""Which step, sample, call or commit of a history goes wrong, and how long what stands for a thread takes."""

import random
from collections import Counter

from tenuto.threads import Body
from tests.simulation.history import Fault
from tests.simulation.journal import Journal
from tests.simulation.loop import SimulatedLoop
from tests.simulation.world import Driven

STEP_S, COMMIT_S = 0.003, 0.004
COMMIT_GIVEN_UP_S = 30.0
"""After so long nobody waits for a commit; those that wait behind it are told so too."""
CALLS = ("late", "hangs", "dies", "dies_after", "breaks")


class Faults:
    """The faults of one history, over all its processes. `touched`: one may have reached the bystander."""

    def __init__(self, faults: tuple[Fault, ...], loop: SimulatedLoop, chance: random.Random, journal: Journal) -> None:
        self.touched = False
        self._faults, self._loop, self._chance, self._journal = faults, loop, chance, journal
        self._counts: Counter[str] = Counter()

    def touch(self) -> None:
        """Something has gone wrong that the bystander may feel."""
        self.touched = True

    def fails(self, what: str) -> bool:
        """Whether this `step` or `sample` fails."""
        return self._next(what, what) is not None

    def aborts(self) -> float | None:
        """Whether this step ends the engine, and for how many seconds. The bystander does not feel it."""
        self._counts["abort"] += 1
        number = self._counts["abort"]
        found = next((one for one in self._faults if one.number == number and one.kind == "abort"), None)
        return None if found is None else found.seconds

    def of_call(self) -> tuple[str, float] | None:
        """How this call of a tool goes wrong."""
        fault = self._next("call", *CALLS)
        return None if fault is None else (fault.kind, fault.seconds)

    def drive_store(self, name: str, body: Body) -> Driven:
        """What stands for the store's thread."""
        return Driven(self._loop, self._commit_times, body)

    def drive_engine(self, name: str, body: Body) -> Driven:
        """What stands for the engine's thread."""
        return Driven(self._loop, lambda: (0.0, self._chance.random() * STEP_S), body)

    def _commit_times(self) -> tuple[float, float]:
        """What is slow may be so before it is durable, or after."""
        slow = self._journal.slow()
        self.touched |= slow > COMMIT_GIVEN_UP_S
        share = self._chance.choice((0.0, 0.5, 1.0))
        quick = self._chance.random() * COMMIT_S
        return quick + slow * share, quick + slow * (1 - share)

    def _next(self, occasion: str, *kinds: str) -> Fault | None:
        self._counts[occasion] += 1
        number = self._counts[occasion]
        found = next((one for one in self._faults if one.number == number and one.kind in kinds), None)
        self.touched |= found is not None
        return found
