"""What the scheduler's rules are asked and told, step after step. Engine thread only."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from tenuto.runtime.engine.bystanders import Bystanders
from tenuto.runtime.engine.messages import Residency, State
from tenuto.runtime.engine.residency import CacheResidency
from tenuto.runtime.engine.roster import Roster
from tenuto.runtime.engine.scheduler import (
    QUANTUM,
    RESUMES,
    Admission,
    Budget,
    Candidate,
    Decode,
    Prefill,
    admit,
    in_turn,
    plan,
)
from tenuto.runtime.engine.sequence import Sequence
from tenuto.sessions.priority import Priority


class Planner:
    """Of one engine: whose turn it is, at the slots and in the steps."""

    def __init__(self, roster: Roster, residency: CacheResidency, budget: Budget, slowdown: float | None) -> None:
        self._roster, self._residency, self._budget = roster, residency, budget
        self.bystanders = Bystanders(slowdown, budget.chunk)
        self._plans = self._passed = 0
        self.interrupted = 0
        """How often a round in the background had to give up its slot."""

    def admissions(self) -> list[Admission]:
        """Who of those that wait may come in now; at most one of them takes a slot from somebody."""
        candidates = [
            Candidate(
                s.id,
                s.slot is not None,
                self._residency.where(s) is Residency.HOST,
                s.principal,
                priority_of(s),
            )
            for s in self._roster.waiting.values()
            if s.open is not None and s.reading is None
        ]
        at_work = chain(self._roster.prefilling.values(), self._roster.decoding.values())
        working = Counter((priority_of(s), s.principal) for s in at_work)
        waiting = in_turn(candidates, working, self._passed)
        return admit(waiting, self._residency.free_slots, self._giving_way(waiting), self._interruptible())

    def admitted(self, sequence: Sequence) -> None:
        """A sequence is at work from now on."""
        assert sequence.open is not None
        sequence.open.sampled_elsewhere = sequence.open.sampled
        is_passed = any(priority_of(one) is Priority.BACKGROUND for one in self._roster.waiting.values())
        is_theirs = priority_of(sequence) is Priority.BACKGROUND
        self._passed = self._passed + 1 if is_passed and not is_theirs else 0

    def shares(self, prefilling: Iterable[Sequence]) -> list[tuple[Sequence, int]]:
        """Who is fed how many tokens in the next step: of those that decode, and of these."""
        roster, prefilling = self._roster, list(prefilling)
        chunk = self.bystanders.chunk(len(roster.decoding)) if prefilling else self._budget.chunk
        fed = [_prefill(one) for one in prefilling] if chunk else []
        budget = replace(self._budget, chunk=chunk or self._budget.chunk)
        decoding = [Decode(one.id, priority_of(one)) for one in roster.decoding.values()]
        shares = plan(decoding, fed, budget, self._plans)
        self._plans += bool(chunk)
        served = [(roster.decoding.get(one.id) or roster.prefilling[one.id], one.tokens) for one in shares]
        if len(served) < len(decoding) + len(fed):
            for sequence, _ in served:  # who is served stands behind those that were not, as `plan` asks for
                roster.send_back(sequence)
        return served

    def _giving_way(self, waiting: list[Candidate]) -> list[str]:
        """Who of those that do nothing gives way first, where the slots that are free are not enough."""
        if sum(not one.resident for one in waiting) <= self._residency.free_slots:
            return []
        return self._residency.giving_way(
            one for one in self._residency.holders() if one.state in (State.PAUSED, State.BLOCKED)
        )

    def _interruptible(self) -> list[str]:
        """The rounds in the background that have had their time in a slot, those first that have had most."""
        said = {
            one.id: one.open.sampled - one.open.sampled_elsewhere
            for one in self._roster.decoding.values()
            if one.open is not None and one.open.priority is Priority.BACKGROUND
        }
        return sorted((id for id, tokens in said.items() if tokens >= QUANTUM), key=lambda id: -said[id])


def priority_of(sequence: Sequence) -> Priority:
    """Of a sequence's open round."""
    return Priority.INTERACTIVE if sequence.open is None else sequence.open.priority


def _prefill(sequence: Sequence) -> Prefill:
    tokens = sequence.text_run
    resumes = sequence.cached > 0 and sequence.pending <= RESUMES
    return Prefill(sequence.id, tokens, priority_of(sequence), resumes)
