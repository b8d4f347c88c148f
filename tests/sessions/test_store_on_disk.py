"""The store's file: what survives, what is refused, and that migrations and tables agree."""

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine
from sqlalchemy.dialects import postgresql, sqlite

from tenuto.errors import ConfigurationError, StoreFailed
from tenuto.sessions.changes import AddItems, SaveSession, whole
from tenuto.sessions.items import UserItem
from tenuto.sessions.session import Session
from tenuto.sessions.storage.database import Database
from tenuto.sessions.storage.store import Store
from tenuto.sessions.storage.tables import metadata
from tenuto.sessions.storage.writes import statements

COMMIT_FOR_EVER = """
import asyncio, itertools, sys
from tenuto.sessions.changes import *
from tenuto.sessions.items import UserItem
from tenuto.sessions.session import Session
from tenuto.sessions.storage.store import Store

store = Store.open(sys.argv[1])

async def work(name):
    session = Session(name, "alice", name, 1.0, 2.0)
    await store.commit(SaveSession(session))
    for n in itertools.count():
        items = (UserItem(f"{name} {n}"), UserItem("again"))
        await store.commit(AddItems(name, 2 * n, items), AddSpans(name, "f", 2 * n, ((n,), (n, n))))
        print(name, n, flush=True)

async def main():
    await asyncio.gather(*(work(f"s{number}") for number in range(8)))

asyncio.run(main())
"""


def url_of(path: Path) -> str:
    return f"sqlite:///{path / 'store.db'}"


def acknowledged_before_kill_9(url: str) -> dict[str, int]:
    """The last commit that each of a process's workers has told of before it was killed."""
    command = [sys.executable, "-c", COMMIT_FOR_EVER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        heard = [child.stdout.readline() for _ in range(400)]
        child.kill()
        heard += child.stdout.read().splitlines(keepends=True)
    acknowledged: dict[str, int] = {}
    for line in heard:
        if line.endswith("\n"):
            name, number = line.split()
            acknowledged[name] = int(number)
    return acknowledged


@pytest.mark.slow
async def test_every_acknowledged_commit_is_there_after_kill_9(tmp_path: Path) -> None:
    acknowledged = await asyncio.to_thread(acknowledged_before_kill_9, url_of(tmp_path))
    assert len(acknowledged) == 8
    store = Store.open(url_of(tmp_path))
    for name, last in acknowledged.items():
        session = await store.session("alice", name)
        assert session is not None
        count = len(session.items) // 2
        # One more may have been written when nobody heard of it any more, but never half of it.
        assert count in (last + 1, last + 2)
        assert session.items == [item for n in range(count) for item in (UserItem(f"{name} {n}"), UserItem("again"))]
        assert session.ledgers["f"].tokens == [n for n in range(count) for _ in range(3)]
        assert session.ledgers["f"].items == 2 * count
    store.close()


@pytest.mark.parametrize("durability", ["process", "full"])
async def test_what_was_committed_is_there_when_the_store_is_opened_again(tmp_path: Path, durability: str) -> None:
    session = Session("u", "alice", "s", 1.0, 2.0, items=[UserItem("hi")])
    store = Store.open(url_of(tmp_path), durability=durability)
    await store.commit(*whole(session))
    store.close()
    store.close()
    store = Store.open(url_of(tmp_path), durability=durability)
    assert await store.session("alice", "s") == session
    store.close()


@pytest.mark.parametrize("is_old", [False, True])
def test_only_the_user_can_read_the_database(is_old: bool, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    if is_old:
        (tmp_path / "some.db").touch(0o644)
    database = Database(f"sqlite:///{tmp_path / 'some.db'}", "process")
    with database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO notes VALUES ('n', 'k', 0, 'v')")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"some.db": 0o600, "some.db-wal": 0o600, "some.db-shm": 0o600}
    database.close()


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("full", 2)])
def test_durability_decides_how_often_the_disk_is_waited_for(tmp_path: Path, durability: str, level: int) -> None:
    database = Database(url_of(tmp_path), durability)
    with database.reading() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "journal_mode")
        }
    database.close()
    assert pragmas == {"synchronous": level, "journal_mode": "wal"}


def test_a_read_sees_one_state_while_others_write(tmp_path: Path) -> None:
    def count(connection: Connection) -> int:
        return int(connection.exec_driver_sql("SELECT count(*) FROM notes").scalar_one())

    database = Database(url_of(tmp_path), "process")
    with database.reading() as reader:
        assert count(reader) == 0
        with database.writing() as writer:
            writer.exec_driver_sql("INSERT INTO notes VALUES ('n', 'k', 0, 'v')")
        assert count(reader) == 0
    with database.reading() as reader:
        assert count(reader) == 1
    database.close()


def test_the_migrations_make_the_tables_of_the_code() -> None:
    database = Database("sqlite://", "process")
    with database.writing() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_every_statement_exists_for_both_databases() -> None:
    for dialect in (sqlite.dialect(), postgresql.dialect()):  # type: ignore[no-untyped-call]
        for statement in statements(dialect.name).values():
            assert str(statement.compile(dialect=dialect))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://localhost/x", "sqlite or postgresql"),
        ("postgresql+nodriver://localhost/x", "not installed"),
        ("sqlite:////nowhere/at/all/store.db", "cannot open"),
    ],
)
def test_a_store_that_cannot_be_opened_says_why(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Store.open(url)


def test_a_wrong_durability_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="process or full"):
        Store.open("sqlite://", durability="maybe")


def test_a_password_is_not_told() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Store.open("postgresql+nodriver://user:hunter2@localhost/x")
    assert "hunter2" not in str(raised.value)


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    Store.open(url_of(tmp_path)).close()
    engine = create_engine(url_of(tmp_path))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ConfigurationError, match="another version"):
        Store.open(url_of(tmp_path))
    engine.dispose()


async def test_a_session_with_a_hole_is_not_used(tmp_path: Path) -> None:
    store = Store.open(url_of(tmp_path))
    session = Session("u", "alice", "s", 1.0, 2.0)
    await store.commit(SaveSession(session), AddItems("u", 0, (UserItem("a"),)), AddItems("u", 2, (UserItem("c"),)))
    with pytest.raises(StoreFailed, match="item 1 is missing"):
        await store.session("alice", "s")
    store.close()
