"""What of a long session is done beside the event loop: nothing that looks at each of its items."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tenuto.sessions import transfer, visible
from tenuto.sessions.directory import Directory
from tenuto.sessions.draft import Draft
from tenuto.sessions.items import AssistantItem, Item, UserItem, item_to_json
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.session import Parent, Session
from tenuto.sessions.storage import writes
from tenuto.sessions.storage.store import Store

LONG = 2000
FEW = 100
HISTORY = [(UserItem if n % 2 == 0 else AssistantItem)(f"word {n}") for n in range(LONG)]


@contextmanager
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts items that become rows, items that become digests and spans that become bytes, in this thread."""
    counts: Counter[str] = Counter()
    here = threading.get_ident()

    def counted(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            counts[name] += threading.get_ident() == here
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(writes, "item_to_json", counted("rows", item_to_json))
        patch.setattr(writes, "pack", counted("spans", writes.pack))
        patch.setattr(visible, "_content", counted("digests", visible._content))
        yield counts


async def long_session(directory: Directory, id: str) -> Session:
    session = await directory.get_or_create("alice", id)
    draft = Draft(session)
    draft.save()
    draft.add(HISTORY)
    draft.grow("f", [(n, n + 1) for n in range(LONG)])
    draft.mark_turns(0)
    await directory.commit(draft)
    return session


async def test_a_long_first_history_is_kept_beside_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_the_loop(monkeypatch) as counts:
        await long_session(Directory(store), "s")
    assert counts.total() <= FEW, counts
    again = await Directory(store).get("alice", "s")
    assert again is not None
    assert again.items == HISTORY
    assert again.ledgers["f"].span(7) == [7, 8]
    assert again.ledgers["f"].items == LONG


async def test_a_fork_of_a_long_session_is_kept_beside_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(store)
    origin = await long_session(directory, "s")
    with on_the_loop(monkeypatch) as counts:
        twin = directory.fork(origin, new_id="t")
        await directory.add(twin)
        origin.ledgers["f"].cut(0)
    assert counts.total() <= FEW, counts
    again = await Directory(store).get("alice", "t")
    assert again is not None
    assert again.items == HISTORY
    assert again.ledgers["f"].span(LONG - 1) == [LONG - 1, LONG]


async def test_what_follows_a_long_history_is_found_by_its_turns(store: Store) -> None:
    directory = Directory(store)
    session = await long_session(directory, "s")
    more: list[Item] = [UserItem("more"), AssistantItem("said")]
    draft = Draft(session)
    draft.add(more)
    draft.mark_turns(LONG)
    await directory.commit(draft)
    history = visible.VisibleHistory()
    history.follow([*HISTORY, *more])
    assert session.history.digests == history.digests
    assert session.history.turns(session.items, LONG) == [(LONG + 2, history.digests[-1].hex())]


def test_a_long_session_is_exported_in_pages_of_few_items_each() -> None:
    session = Session("u", "alice", "s", 1.0, 2.0, items=[*HISTORY], parent=Parent("p", 3), notes={"k": "a note"})
    for name in ("f", "g"):
        session.ledgers[name] = Ledger(name)
        for n in range(LONG):
            session.ledgers[name].append((n, n + 1))
    pages = list(transfer.pages(session))
    assert max(page.count(b'"kind":') for page in pages) <= transfer.PAGE
    assert max(page.count(b"[") for page in pages) <= transfer.PAGE + 1
    again = transfer.restore_text(b"".join(pages), "alice", "s")
    assert replace(again, uid="u") == session


async def test_what_happens_to_a_session_while_it_is_exported_is_not_in_its_document(store: Store) -> None:
    session = await long_session(Directory(store), "s")
    pages = transfer.pages(transfer.snapshot(session))
    begin = next(pages)
    draft = Draft(session)
    draft.cut(1)
    draft.apply()
    again = transfer.restore_text(begin + b"".join(pages), "alice", "s")
    assert again.items == HISTORY
    assert again.ledgers["f"].items == LONG


@pytest.mark.parametrize("since", [0, 1, 3, 6])
def test_turns_have_the_digests_of_what_is_visible_up_to_their_ends(since: int) -> None:
    items: list[Item] = [UserItem("a"), AssistantItem(""), UserItem("b"), AssistantItem("c"), UserItem("d")]
    items.append(AssistantItem("e"))
    history = visible.VisibleHistory()
    found = history.turns(items, since)
    assert found == [(end, history.prefix(items, end).digest.hex()) for end, _ in found]
    assert [end for end, _ in found] == [end for end in (2, 4, 6) if end > since]
