"""Who is fed how much in the next step, and who is admitted next: pure functions, without threads, clocks or caches.

Decoding sequences get one token each; what is left of the step's budget goes to prefill, shared evenly, so that a
short resume does not wait for a long cold prompt and neither stops the others from decoding. Principals are admitted in
turn, and each one's rounds first come, first served, which with rounds of bounded length starves nobody.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step may carry: `tokens` over all rows, of which prefill gets `chunk` while others decode."""

    tokens: int
    chunk: int

    def __post_init__(self) -> None:
        if min(self.tokens, self.chunk) < 1:
            raise ValueError(f"a step that carries nothing serves nobody: {self}")


@dataclass(frozen=True, slots=True)
class Prefill:
    """A sequence with tokens yet to be fed."""

    id: str
    pending: int


@dataclass(frozen=True, slots=True)
class Share:
    """How many tokens of a sequence go into the step."""

    id: str
    tokens: int


def plan(decoding: Sequence[str], prefilling: Sequence[Prefill], budget: Budget, turn: int) -> list[Share]:
    """Divide a step's budget.

    Where not everybody fits, the first of each kind are served. So that everybody's turn comes, whoever was served
    stands behind those that were not when the next step is planned.
    While there is prefill, at least one token of the budget is prefill's; while there is decoding, at least one is
    decoding's, and where both do not fit into a budget of one, they alternate by `turn`, which counts the steps.
    """
    reserve = 1 if prefilling else 0
    if budget.tokens == 1 and prefilling and decoding:
        reserve = turn % 2
    decode = decoding[: budget.tokens - reserve]
    left = budget.tokens - len(decode)
    if decode:
        left = min(left, budget.chunk)
    shares = [Share(id, 1) for id in decode]
    return shares + _fill(prefilling[:left], left)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting sequence. `resident`: it has a slot. `moves`: admitting it moves a cache in."""

    id: str
    resident: bool
    moves: bool = False
    principal: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is admitted, and whose slot it takes where none is free."""

    id: str
    evict: str | None = None


def in_turn(waiting: Sequence[Candidate], working: Mapping[str, int]) -> list[Candidate]:
    """The candidates, given in order of arrival, in the order in which they are to be admitted.

    Whoever has fewer rounds comes first: those at work, of which each principal has `working`, and those that wait
    before a candidate. Where that is equal, who came first.
    """
    rounds = Counter(working)
    ranks: list[int] = []
    for candidate in waiting:
        ranks.append(rounds[candidate.principal])
        rounds[candidate.principal] += 1
    order = sorted(range(len(waiting)), key=ranks.__getitem__)
    return [waiting[at] for at in order]


def admit(waiting: Sequence[Candidate], free: int, paused: Sequence[str]) -> list[Admission]:
    """Choose who of those that wait, in their order, is admitted now. At most one takes another's slot or moves its
    cache in.

    A resident one needs no other slot and passes those that wait for one. `paused` are the sequences that hold a slot
    and do nothing, the first to give way first. After them, a resident one that waits behind the candidate gives way,
    the latest first: else a stream of resumes could keep a slot for ever.
    """
    admitted: list[Admission] = []
    taken: set[str] = set()
    idle = list(paused)
    blocked = moved = False
    for at, candidate in enumerate(waiting):
        if candidate.id in taken:
            continue
        if candidate.resident:
            admitted.append(Admission(candidate.id))
            continue
        if blocked or (moved and candidate.moves):
            blocked = True
            continue
        victim = None
        if free > 0:
            free -= 1
        else:
            behind = (c.id for c in reversed(waiting[at + 1 :]) if c.resident and c.id not in taken)
            victim = None if moved else (idle.pop(0) if idle else next(behind, None))
            if victim is None:
                blocked = True
                continue
            taken.add(victim)
        moved = moved or candidate.moves or victim is not None
        admitted.append(Admission(candidate.id, victim))
    return admitted


def _fill(prefilling: Sequence[Prefill], tokens: int) -> list[Share]:
    """Even shares of at least a token; what a short one does not need goes to the longer ones."""
    entries = sorted(prefilling, key=lambda entry: entry.pending)
    shares: list[Share] = []
    for served, entry in enumerate(entries):
        share = min(entry.pending, tokens // (len(entries) - served))
        shares.append(Share(entry.id, share))
        tokens -= share
    return shares
