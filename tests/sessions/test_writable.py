"""A store that cannot write says so, and finds out by itself when it can again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from tenuto.errors import StoreFailed, StoreUnavailable
from tenuto.sessions.changes import AddItems, SaveSession
from tenuto.sessions.items import UserItem
from tenuto.sessions.session import Session
from tenuto.sessions.storage.store import Store

SESSION = Session("u", "alice", "s", 1.0, 2.0)


class Disk:
    """Has room, or has none: SQLite says the same of a database that may have no more pages."""

    def __init__(self) -> None:
        self.is_full = False
        event.listen(Engine, "begin", self._limit)

    def _limit(self, connection: object) -> None:
        most = 1 if self.is_full else 1 << 30
        connection.exec_driver_sql(f"PRAGMA max_page_count={most}")  # type: ignore[attr-defined]  # SQLAlchemy's

    def close(self) -> None:
        event.remove(Engine, "begin", self._limit)


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.close()


@pytest.fixture
def kept(tmp_path: Path, disk: Disk) -> Iterator[Store]:
    del disk
    opened = Store.open(f"sqlite:///{tmp_path / 'store.db'}")
    yield opened
    opened.close()


async def fill(store: Store, disk: Disk) -> None:
    await store.commit(SaveSession(SESSION))
    disk.is_full = True
    with pytest.raises(StoreFailed, match="full"):
        await store.commit(AddItems("u", 0, (UserItem("x" * 100_000),)))


async def test_a_store_that_cannot_write_refuses_before_anything_is_begun(kept: Store, disk: Disk) -> None:
    kept.expect_to_write()
    await fill(kept, disk)
    assert kept.trouble is not None
    with pytest.raises(StoreUnavailable, match="the store cannot write: database or disk is full"):
        kept.expect_to_write()


async def test_it_notices_by_itself_when_there_is_room_again(
    kept: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.sessions.storage.store._TRY_AGAIN_S", 0.01)
    await fill(kept, disk)
    trying = asyncio.create_task(kept.keep_trying())
    await asyncio.sleep(0.1)
    assert kept.trouble is not None, "nothing has changed"
    disk.is_full = False
    async with asyncio.timeout(5):
        while kept.trouble is not None:  # noqa: ASYNC110  (a thread sets it)
            await asyncio.sleep(0.01)
    trying.cancel()
    await kept.commit(AddItems("u", 0, (UserItem("again"),)))


async def test_a_commit_that_is_wrong_in_itself_says_nothing_of_the_store(kept: Store) -> None:
    with pytest.raises(StoreFailed):
        await kept.commit(AddItems("nobody", 0, (UserItem("hi"),)))
    assert kept.trouble is None
