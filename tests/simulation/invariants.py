"""What must hold of the files at rest and after each crash, and of a history when it is over."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from tenuto.errors import StoreFailed
from tenuto.sessions.items import AssistantItem, Item, NoteItem, ToolResultItem, UserItem
from tenuto.sessions.records import OpenRun
from tenuto.sessions.session import Session
from tenuto.sessions.storage import reads, tables
from tests.simulation.journal import Pause, WatchedStore
from tests.simulation.script import chained

if TYPE_CHECKING:
    from tests.simulation.play import Play


def check_files(play: "Play", store: WatchedStore, *, recovered: bool) -> None:
    """Read everything that the store has. `recovered`: what a crash has left open has been closed."""
    found: dict[tuple[str, str], Session] = {}
    with store._database.reading() as connection:
        rows = connection.execute(select(tables.sessions.c.principal, tables.sessions.c.id)).all()
        open_runs = {run.id: run for run in reads.open_runs(connection)}
        for principal, id in rows:
            try:
                session = reads.session(connection, principal, id)
            except StoreFailed as error:
                play.wrong(f"session {id} of {principal} does not load: {error}")
                continue
            assert session is not None
            found[principal, id] = session
    for key, session in found.items():
        for problem in _session_problems(play, session, open_runs, recovered=recovered):
            play.wrong(f"session {key[1]} of {key[0]}: {problem}")
    _check_expected(play, found)
    if recovered:
        for run in open_runs.values():
            if run.status == "running":
                play.wrong(f"run {run.id} is running in the store, and nobody runs it")


def _check_expected(play: "Play", found: dict[tuple[str, str], Session]) -> None:
    oracle = play.oracle
    for key in [*oracle.said]:
        words = oracle.kept(key)
        session = found.get(key)
        if session is None:
            if words:
                play.wrong(f"session {key[1]} of {key[0]} is gone, and with it {sorted(words)}")
            continue
        has = {item.text.split()[-1] for item in session.items if isinstance(item, UserItem)}
        if lost := words - has:
            play.wrong(f"session {key[1]} of {key[0]} has lost what was acknowledged: {sorted(lost)}")
    for key in [*oracle.wiped]:
        if key in found and oracle.gone(key):
            play.wrong(f"session {key[1]} of {key[0]} is there although its end was acknowledged")


def _session_problems(play: "Play", session: Session, open_runs: dict[str, OpenRun], *, recovered: bool) -> list[str]:
    key = (session.principal, session.id)
    # Where a client has put a conversation that waited, no run waits for the results, and the client may bring them.
    problems = item_problems(session.items, waits=session.open_run is not None or key in play.oracle.replaced)
    if session.open_run is not None and session.open_run not in open_runs and recovered:
        problems.append(f"its open run {session.open_run} has ended")
    theirs = [run.id for run in open_runs.values() if (run.principal, run.session_id) == key]
    if len(theirs) > 1 or (recovered and theirs != [run for run in (session.open_run,) if run]):
        problems.append(f"its open run is {session.open_run}, and these are open: {theirs}")
    if key not in play.oracle.replaced and not session.implicit:
        problems += ledger_problems(session, play.seen)
    remembered = {
        pause.tool for pause in play.journal.pauses.values()
        if pause.session == session.uid and play.oracle.may_remember(pause.id)
    }  # fmt: skip
    if wrong := {name.split()[0] for name in session.approved} - remembered:
        problems.append(f"{sorted(wrong)} is approved for good, and nobody's answer to that was taken")
    return problems


def item_problems(items: Sequence[Item], *, waits: bool) -> list[str]:
    """Each call has exactly one result, in order, before anything else is said; only a run that waits owes some. The
    model is told of a broken call at most once after each thing that a user says."""
    problems: list[str] = []
    owed: list[str] = []
    seen: Counter[str] = Counter()
    before: Item | None = None
    may_tell = True
    for place, item in enumerate(items):
        if isinstance(item, ToolResultItem):
            seen[item.call_id] += 1
            if not owed or owed[0] != item.call_id:
                problems.append(f"item {place} is a result of {item.call_id}, which waits for none")
            else:
                owed.pop(0)
            continue
        if owed:
            problems.append(f"item {place} follows calls without a result: {owed}")
        if isinstance(item, NoteItem) and not (isinstance(before, AssistantItem) and not before.calls and may_tell):
            problems.append(f"item {place} is a note, and nothing is to be told")
        may_tell = not isinstance(item, NoteItem) and (may_tell or isinstance(item, UserItem))
        before = item
        owed = [call.id for call in item.calls] if isinstance(item, AssistantItem) else []
    if owed and not waits:
        problems.append(f"calls without a result: {owed}")
    problems += [f"call {call} has {n} results" for call, n in seen.items() if n > 1]
    return problems


def ledger_problems(session: Session, seen: set[int]) -> list[str]:
    """After each of its answers, a ledger is what the model had in its cache, and then said."""
    problems = []
    for ledger in session.ledgers.values():
        name = 0
        for place in range(ledger.items):
            for token in ledger.span(place):
                name = chained(name, token)
            if isinstance(session.items[place], AssistantItem) and name not in seen:
                problems.append(f"the ledger up to item {place} is not what the model saw and said")
                break
    return problems


def check_effects(play: "Play") -> None:
    """No call with an effect is made twice, none without the permission it needs, none after its cancel was told."""
    oracle, effects = play.oracle, play.outside.effects
    for call, times in Counter(effect.call for effect in effects).items():
        if times > 1:
            play.wrong(f"call {call} was made {times} times")
    for (tool, word), times in Counter((effect.tool, effect.word) for effect in effects).items():
        if times > oracle.effects(word):
            play.wrong(f"{tool} {word} happened {times} times, and was asked for {oracle.effects(word)} times")
    pauses = {pause.call: pause for pause in play.journal.pauses.values()}
    for effect in effects:
        told = None if effect.run is None else oracle.cancel_told(effect.run)
        if told is not None and effect.at > told:
            play.wrong(f"{effect.tool} {effect.word} happened after the cancel of its run was answered")
        if effect.tool == "g__put":
            _check_permission(play, effect.call, effect.session, pauses.get(effect.call))


def _check_permission(play: "Play", call: str, session: str | None, pause: Pause | None) -> None:
    oracle = play.oracle
    remembered = any(
        one.session == session and one.tool == "g__put" and oracle.may_remember(one.id)
        for one in play.journal.pauses.values()
    )
    if pause is not None:
        if oracle.denied(pause.id):
            play.wrong(f"call {call} was made although {pause.id} was denied")
        elif not (oracle.may_approve(pause.id) or remembered):
            play.wrong(f"call {call} was made although nobody approved {pause.id}")
    elif not remembered:
        play.wrong(f"call {call} was made unasked")


def check_decisions(play: "Play") -> None:
    """One answer to an approval is taken; a run is cancelled only where somebody has a right to that."""
    for pause in play.oracle.decided_twice():
        play.wrong(f"two answers to approval {pause} were taken")
    for run, status in play.journal.statuses.items():
        if status != "cancelled":
            continue
        key = play.journal.sessions.get(play.journal.runs[run])
        wiped = key is not None and (play.oracle.wiped[key] or any(one.wipes for one in play.oracle.said[key]))
        if not (play.oracle.cancelled[run] or run in play.oracle.reasons or key in play.oracle.left or wiped):
            play.wrong(f"run {run} was cancelled, and nobody had cancelled it or left it")
