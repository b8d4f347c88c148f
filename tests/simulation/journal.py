"""The store of the simulation: real SQLite, in which chosen commits are slow or fail, and whose rows are watched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from tenuto.sessions.records import RunStatus
from tenuto.sessions.storage.database import Database
from tenuto.sessions.storage.store import Store
from tenuto.sessions.storage.writes import Write
from tenuto.threads import Drive
from tests.simulation.history import BYSTANDER, Fault
from tests.simulation.loop import Process
from tests.simulation.world import Injected

_NAMES = ("principal", "uid", "id", "run_id", "session_uid", "of_uid")
"""Under which names rows tell whose they are."""


@dataclass
class Pause:
    """An approval as the store has it."""

    id: str
    run: str
    call: str
    tool: str
    session: str
    status: str


@dataclass
class Journal:
    """What was written, over all processes of a history, and which commits shall go wrong. No SQL of its own."""

    faults: Sequence[Fault]
    wrong: Callable[[str], None]
    commits: int = 0
    statuses: dict[str, str] = field(default_factory=dict)
    pauses: dict[str, Pause] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """The session of each run, by its uid."""
    sessions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The principal and id of each session, by its uid."""
    spared: set[str] = field(default_factory=lambda: {BYSTANDER})
    """The bystander's name, and the ids of what is hers."""

    def number(self, commit: Sequence[Write]) -> int:
        """The commit's number; 0 for one that is the bystander's."""
        rows = [row for write in commit for row in write.rows]
        named = {row[name] for row in rows for name in _NAMES if isinstance(row.get(name), str)}
        if named & self.spared:
            self.spared |= named
            return 0
        self.commits += 1
        return self.commits

    def fault(self, number: int, *kinds: str) -> Fault | None:
        """What is wrong with the commit of that number."""
        return next((one for one in self.faults if one.number == number and one.kind in kinds), None)

    def slow(self) -> float:
        """How much longer than others the next commit takes."""
        fault = self.fault(self.commits + 1, "slow", "slow_fails")
        return 0.0 if fault is None else fault.seconds

    def wrote(self, commit: Sequence[Write]) -> None:
        """A commit is kept."""
        for write in commit:
            for row in write.rows:
                match write.statement:
                    case "save_session":
                        self.sessions[row["uid"]] = row["principal"], row["id"]
                    case "save_run":
                        self.runs[row["id"]] = row["session_uid"]
                        self._run(row["id"], row["status"])
                    case "save_pause":
                        names = ("id", "run_id", "call_id", "tool", "session_uid", "status")
                        self._pause(Pause(*(row[name] for name in names)))

    def _run(self, id: str, status: str) -> None:
        before = self.statuses.get(id)
        if before is not None and not RunStatus(before).is_open and before != status:
            self.wrong(f"run {id} was {before} and is {status} now")
        self.statuses[id] = status

    def _pause(self, pause: Pause) -> None:
        before = self.pauses.get(pause.id)
        if before is not None and before.status not in ("open", pause.status):
            self.wrong(f"approval {pause.id} was {before.status} and is {pause.status} now")
        self.pauses[pause.id] = pause


class MadeDatabase(Database):
    """A database whose file is a copy of one that has all tables. All of them share what SQLAlchemy compiles."""

    def __init__(self, url: str, durability: str) -> None:
        super().__init__(url, durability)
        first = _FIRST.setdefault("engine", self._engine)
        if first is not self._engine:
            self._engine.connect().close()  # so that its own dialect has been set up
            self._engine.dialect, self._engine._compiled_cache = first.dialect, first._compiled_cache

    def _migrate(self) -> None:
        """Done when the file was made."""


_FIRST: dict[str, Engine] = {}


class WatchedStore(Store):
    """Tells the journal. `crash` ends the process at once, before or after a commit."""

    def __init__(self, url: str, drive: Drive, journal: Journal, process: Process, crash: Callable[[], None]) -> None:
        self._journal, self._process, self._crash = journal, process, crash
        self._numbers: dict[int, tuple[int, Any]] = {}
        super().__init__(MadeDatabase(url, "process"), drive=drive)

    def dispose(self) -> None:
        """Close the files of a process that is dead."""
        self._database.close()

    def _write(self, commits: Sequence[Sequence[Write]]) -> None:
        if self._process.dead:
            raise Injected("the process is dead")
        numbers = [self._number(commit) for commit in commits]
        if any(self._journal.fault(number, "fails", "slow_fails") for number in numbers):
            raise Injected("the disk is full")
        if any(self._journal.fault(number, "crash_before") for number in numbers):
            self._crash()
            raise Injected("the process is dead")
        super()._write(commits)
        for commit in commits:
            self._journal.wrote(commit)
        if any(self._journal.fault(number, "crash_after") for number in numbers):
            self._crash()

    def _number(self, commit: Sequence[Write]) -> int:
        # The commit is held with its number, so that no other one gets its id.
        if id(commit) not in self._numbers:
            self._numbers[id(commit)] = self._journal.number(commit), commit
        return self._numbers[id(commit)][0]
