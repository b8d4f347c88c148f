"""Who is fed how much in the next step, and who is admitted next: pure functions, without threads, clocks or caches.

Decoding sequences get one token each; what is left of the step's budget goes to prefill, shared evenly, so that a
short resume does not wait for a long cold prompt and neither stops the others from decoding. Principals are admitted in
turn, and each one's rounds first come, first served, which with rounds of bounded length starves nobody.

Interactive rounds come before those in the background, everywhere. But one turn in `EVERY` is the background's: of
steps, and of admissions that passed somebody who waits in the background. So neither kind can starve the other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tenuto.sessions.priority import Priority

EVERY = 8
"""One turn in so many is the background's, if it has use for it."""
RESUMES = 64
"""A sequence that goes on from its cache after so few tokens is fed before new prompts."""
QUANTUM = 64
"""A round in the background says so many tokens in a slot before it may have to give it up to an interactive one."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step may carry: `tokens` over all rows, of which prefill gets `chunk` while others decode."""

    tokens: int
    chunk: int

    def __post_init__(self) -> None:
        if min(self.tokens, self.chunk) < 1:
            raise ValueError(f"a step that carries nothing serves nobody: {self}")


@dataclass(frozen=True, slots=True)
class Decode:
    """A sequence that gets one token a step."""

    id: str
    priority: Priority = Priority.INTERACTIVE


@dataclass(frozen=True, slots=True)
class Prefill:
    """A sequence with tokens yet to be fed. `resumes`: they are few, and those before them have a cache."""

    id: str
    pending: int
    priority: Priority = Priority.INTERACTIVE
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """How many tokens of a sequence go into the step."""

    id: str
    tokens: int


def plan(decoding: Sequence[Decode], prefilling: Sequence[Prefill], budget: Budget, turn: int) -> list[Share]:
    """Divide a step's budget.

    Where not everybody fits, the first of each kind are served. So that everybody's turn comes, whoever was served
    stands behind those that were not when the next step is planned.
    While there is prefill, at least one token of the budget is prefill's; while there is decoding, at least one is
    decoding's, and where both do not fit into a budget of one, they alternate by `turn`, which counts the plans.
    """
    reserve = 1 if prefilling else 0
    if budget.tokens == 1 and prefilling and decoding:
        reserve = turn % 2
    shares = [Share(one.id, 1) for of_class in _classes(decoding, turn) for one in of_class]
    shares = shares[: budget.tokens - reserve]
    left = budget.tokens - len(shares)
    if shares:
        left = min(left, budget.chunk)
    for of_class in _classes(prefilling, turn):
        given = _fill_class(of_class, left)
        left -= sum(share.tokens for share in given)
        shares += given
    return shares


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting sequence. `resident`: it has a slot. `moves`: admitting it moves a cache in."""

    id: str
    resident: bool
    moves: bool = False
    principal: str = ""
    priority: Priority = Priority.INTERACTIVE


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is admitted, and whose slot it takes where none is free."""

    id: str
    evict: str | None = None


def in_turn(
    waiting: Sequence[Candidate], working: Mapping[tuple[Priority, str], int], passed: int = 0
) -> list[Candidate]:
    """The candidates, given in order of arrival, in the order in which they are to be admitted.

    The interactive ones first; but once `passed` of them were admitted while somebody waited in the background, one of
    these comes before them. Among those of one priority whoever has fewer rounds of it comes first: those at work,
    which `working` counts by priority and principal, and those that wait before a candidate. Where that is equal, who
    came first.
    """
    rounds = Counter(working)
    ranks: list[int] = []
    for candidate in waiting:
        whose = candidate.priority, candidate.principal
        ranks.append(rounds[whose])
        rounds[whose] += 1
    order = sorted(range(len(waiting)), key=lambda at: (waiting[at].priority is Priority.BACKGROUND, ranks[at]))
    turns = [waiting[at] for at in order]
    if passed >= EVERY - 1:
        due = [one for one in turns if one.priority is Priority.BACKGROUND][:1]
        turns = due + [one for one in turns if one not in due]
    return turns


def admit(
    waiting: Sequence[Candidate], free: int, paused: Sequence[str], interruptible: Sequence[str] = ()
) -> list[Admission]:
    """Choose who of those that wait, in their order, is admitted now. At most one takes another's slot or moves its
    cache in.

    A resident one needs no other slot and passes those that wait for one. `paused` are the sequences that hold a slot
    and do nothing, the first to give way first. After them, a resident one that waits behind the candidate gives way,
    the latest first: else a stream of resumes could keep a slot for ever. After those, and to interactive candidates
    alone, a round in the background that is at work: one of the `interruptible`, the first of them first.
    """
    admitted: list[Admission] = []
    taken: set[str] = set()
    idle, at_work = list(paused), list(interruptible)
    blocked = blocked_interactive = moved = False
    for at, candidate in enumerate(waiting):
        if candidate.id in taken:
            continue
        if candidate.resident:
            admitted.append(Admission(candidate.id))
            continue
        is_interactive = candidate.priority is Priority.INTERACTIVE
        is_blocked = blocked or (moved and candidate.moves)
        victim = None
        if free > 0 and not is_blocked:
            free -= 1
        else:
            if not (is_blocked or moved):
                behind = (c.id for c in reversed(waiting[at + 1 :]) if c.resident and c.id not in taken)
                victim = idle.pop(0) if idle else next(behind, None)
            # Who waits in the background for a slot keeps nobody from one that the background has to give up.
            if victim is None and is_interactive and at_work and not (moved or blocked_interactive):
                victim = at_work.pop(0)
            if victim is None:
                blocked, blocked_interactive = True, blocked_interactive or is_interactive
                continue
            taken.add(victim)
        moved = moved or candidate.moves or victim is not None
        admitted.append(Admission(candidate.id, victim))
    return admitted


class _Ranked(Protocol):
    @property
    def priority(self) -> Priority: ...


RankedT = TypeVar("RankedT", bound=_Ranked)


def _classes(entries: Sequence[RankedT], turn: int) -> list[list[RankedT]]:
    """The entries by their priority, in the order in which these are served in the turn."""
    # Two turns one after the other, since turns alternate where a step has room for one token.
    is_due = turn // 2 % EVERY == EVERY - 1
    order = sorted(Priority, key=lambda priority: (priority is Priority.BACKGROUND) is not is_due)
    return [[entry for entry in entries if entry.priority is priority] for priority in order]


def _fill_class(entries: Sequence[Prefill], tokens: int) -> list[Share]:
    """Resumes first; but where there are others, half of the tokens is theirs, if they have use for it."""
    resumes = [entry for entry in entries if entry.resumes]
    others = [entry for entry in entries if not entry.resumes]
    if tokens < 2:
        return _fill(entries, tokens)
    kept = min(tokens // 2, sum(entry.pending for entry in others))
    first = _fill(resumes, tokens - kept)
    return first + _fill(others, tokens - sum(share.tokens for share in first))


def _fill(prefilling: Sequence[Prefill], tokens: int) -> list[Share]:
    """Even shares of at least a token for as many as there are tokens; what a short one does not need goes to the
    longer ones."""
    entries = sorted(prefilling[:tokens], key=lambda entry: entry.pending)
    shares: list[Share] = []
    for served, entry in enumerate(entries):
        share = min(entry.pending, tokens // (len(entries) - served))
        shares.append(Share(entry.id, share))
        tokens -= share
    return shares
