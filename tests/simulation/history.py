"""What happens in a history, as data made from its seed: who asks for what and when, and what goes wrong. Pure."""

import random
from dataclasses import dataclass, field, fields, replace

EVERYBODY = ("alice", "bob")
BYSTANDER = "carol"
"""She shares nothing with the others but the server, and no fault is aimed at her."""

SAYS = {
    "hello": 4, "long": 3, "write": 4, "look": 1, "ask": 7, "mine": 4, "both": 2, "two": 2, "again": 1, "fail": 2,
    "sampler": 1, "break": 2,
}  # fmt: skip
DIALECTS = ("", "chat", "responses")
KINDS = {
    "turn": 22, "decide": 12, "cancel": 6, "result": 6, "delete": 3, "fork": 2, "export": 2, "import": 3, "match": 2,
    "watch": 2, "wait": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Op:
    """One thing that a client does, `after` so many seconds of doing nothing.

    `pick` chooses among what the client knows of: the newest pause, run or document is 0. `leaves`: the client goes
    away so many seconds after it asked; `lingers`: so long after some approval has been answered. `reads`: it takes so
    many events, then none for a long time. `aborts`: its request is broken off while it is being handled. `dialect` is
    that of a request for a turn; without one it speaks with the loop itself.
    """

    client: int
    kind: str
    principal: str
    session: str | None = None
    after: float = 0.0
    say: str = "hello"
    word: str = ""
    pick: int = 0
    yes: bool = True
    remember: bool = False
    key: bool = False
    twice: bool = False
    leaves: float | None = None
    reads: int | None = None
    lingers: float | None = None
    aborts: float | None = None
    dialect: str = ""

    def __str__(self) -> str:
        given = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if one.name not in ("client", "kind", "principal", "after") and getattr(self, one.name) != one.default
        ]
        return (
            f"client {self.client} ({self.principal}) after {self.after:.3f} s: {self.kind} {' '.join(given)}".rstrip()
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at the `number`th occasion of its kind; `seconds` is for what is slow.

    Occasions: commits (`slow`, `fails`, `slow_fails`, `crash_before`, `crash_after`), steps of the engine (`step`, and
    `abort`, which ends the engine for so long), samples (`sample`), calls of tools (`late`, `hangs`, `dies`,
    `dies_after`, `breaks`). `crash` and `restart` come at a time.
    """

    kind: str
    number: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        where = f"number {self.number}" if self.number else f"at {self.seconds:.3f} s"
        return f"{self.kind} {where}" + (f" ({self.seconds:.3f} s)" if self.number and self.seconds else "")


@dataclass(frozen=True, slots=True)
class History:
    """All of it. What is not here follows from the seed alone."""

    seed: int
    slots: int
    haste: float
    ops: tuple[Op, ...]
    faults: tuple[Fault, ...] = field(default=())
    host_bytes: int = 1 << 20
    """What caches may take in host memory."""
    disk_bytes: int = 0
    """And on the disk; 0: nothing is kept there."""

    def __str__(self) -> str:
        room = f"{self.host_bytes} bytes of host memory and {self.disk_bytes} of disk for caches"
        lines = [f"history {self.seed}: {self.slots} slots, haste {self.haste}, {room}"]
        lines += [f"  fault: {fault}" for fault in self.faults]
        return "\n".join([*lines, *(f"  {op}" for op in self.ops)])


def make(seed: int) -> History:
    """The history of that number."""
    chance = random.Random(f"{seed}/history")
    ids = chance.choice((("a",), ("a",), ("a", "b")))
    rush = chance.choice((0.0, 0.02, 0.2))
    clients = chance.randint(2, 4)
    ops = [
        _op(chance, client, number, ids, rush) for client in range(clients) for number in range(chance.randint(2, 6))
    ]
    faults = tuple(_fault(chance) for _ in range(chance.choice((0, 1, 1, 2, 3))))
    faults += tuple(_aborts(random.Random(f"{seed}/aborts")))
    ops += _bystander(chance)
    speaks = random.Random(f"{seed}/dialects")
    ops = [replace(op, dialect=speaks.choice(DIALECTS)) for op in ops]
    room = random.Random(f"{seed}/room")
    host, disk = room.choice((0, 4_000, 20_000, 1 << 20)), room.choice((0, 10_000, 1 << 20))
    return History(seed, chance.randint(1, 3), chance.choice((0.0, 0.5, 0.9)), tuple(ops), faults, host, disk)


def _op(chance: random.Random, client: int, number: int, ids: tuple[str, ...], rush: float) -> Op:
    kind = "turn" if number == 0 and chance.random() < 0.7 else chance.choices(list(KINDS), list(KINDS.values()))[0]
    principal = EVERYBODY[chance.random() < 0.15]
    after = chance.random() * rush
    op = Op(client, kind, principal, chance.choice(ids), after, pick=int(chance.random() * 1.3))
    match kind:
        case "turn" | "match" | "result":
            return _turn(chance, op, f"w{client}{number}")
        case "decide":
            yes, remember = chance.random() < 0.7, chance.random() < 0.4
            return _with(op, yes=yes, remember=remember, twice=chance.random() < 0.2)
        case "wait":
            return _with(op, after=chance.choice((1.5, 25.0, 70.0)))
    return op


def _turn(chance: random.Random, op: Op, word: str) -> Op:
    say = chance.choices(list(SAYS), list(SAYS.values()))[0]
    key = chance.random() < 0.25
    op = _with(op, say=say, word=word, key=key, twice=chance.random() < 0.15)
    ending = chance.random()
    if say in ("fail", "sampler") and ending < 0.5:
        return _with(op, leaves=chance.random() * 0.05)
    if say in ("ask", "two") and ending < 0.3:
        return _with(op, reads=chance.randrange(4), lingers=chance.random() * 0.1)
    if ending < 0.15:
        return _with(op, leaves=chance.random() * 0.2)
    if ending < 0.3:
        return _with(op, reads=chance.randrange(8), leaves=0.2 + chance.random() * 3)
    if ending < 0.33 and op.kind != "match":
        return _with(op, aborts=chance.random() * 0.05)
    return op


def _fault(chance: random.Random) -> Fault:
    commit, seconds = 1 + int(chance.random() ** 2 * 40), 0.05 + chance.random() * 2
    if chance.random() < 0.06:
        seconds = chance.choice((33.0, 70.0))  # longer than anybody waits for a commit
    match chance.randrange(10):
        case 0 | 1:
            return Fault("fails", commit)
        case 2 | 3:
            return Fault("slow_fails", commit, seconds)
        case 4:
            return Fault("slow", commit, seconds)
        case 5:
            return Fault(chance.choice(("crash_before", "crash_after")), commit)
        case 6:
            return Fault(chance.choice(("crash", "restart")), seconds=chance.random() * 2)
        case 7:
            return Fault(chance.choice(("step", "sample")), 1 + int(chance.random() * 60))
        case _:
            kind = chance.choice(("late", "hangs", "dies", "dies_after", "breaks"))
            return Fault(kind, 1 + chance.randrange(4), seconds)


def _aborts(chance: random.Random) -> list[Fault]:
    ends = chance.choice((0, 0, 1, 1, 2))
    return [Fault("abort", 1 + int(chance.random() * 60), chance.random()) for _ in range(ends)]


def _bystander(chance: random.Random) -> list[Op]:
    says = [chance.choice(("hello", "write", "long")) for _ in range(2)]
    return [
        Op(9, "turn", BYSTANDER, "c", chance.random() * 0.3, say=say, word=f"c{number}")
        for number, say in enumerate(says)
    ]


def _with(op: Op, **changes: object) -> Op:
    return replace(op, **changes)  # type: ignore[arg-type]
