"""A PostgreSQL that is lost in a commit: it goes on with what it was told, and the store says what came of it."""

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from tenuto.errors import CommitUnsettled
from tenuto.sessions.changes import AddItems, whole
from tenuto.sessions.items import UserItem
from tenuto.sessions.session import Session
from tenuto.sessions.storage.store import Store
from tests.postgresql import missing, running, socket_in, url_at

pytestmark = pytest.mark.slow

HI, HO = UserItem("hi"), UserItem("ho")
SLOW_COMMITS = """
CREATE FUNCTION slowly() RETURNS trigger AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$ LANGUAGE plpgsql;
CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON items DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slowly();
"""


class Line:
    """A socket on the way to the database: it breaks with the next COMMIT, which has come through or has not."""

    def __init__(self, target: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.breaks: bool | None = None
        self._target = str(target)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(socket_in(self.folder)))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                breaks = self.breaks if b"COMMIT" in data else None
                if breaks is not False:
                    sink.sendall(data)
                if breaks is not None:
                    self.breaks = None
                    break
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Path]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with running() as folder:
        Store.open(url_at(folder)).close()
        engine = create_engine(url_at(folder))
        with engine.begin() as connection:
            connection.exec_driver_sql(SLOW_COMMITS)
        engine.dispose()
        yield folder


@pytest.fixture
def line(postgresql: Path) -> Iterator[Line]:
    made = Line(socket_in(postgresql))
    yield made
    made.close()


@pytest.mark.parametrize("kept", [True, False])
async def test_what_a_lost_commit_comes_to_is_there_when_it_is_told_as_not_known(line: Line, kept: bool) -> None:
    store = Store.open(url_at(line.folder))
    try:
        session = Session(f"u{kept}", "alice", f"s{kept}", 1.0, 2.0, items=[HI])
        await store.commit(*whole(session))
        line.breaks = kept
        with pytest.raises(CommitUnsettled, match="lost in a commit"):
            await store.commit(AddItems(session.uid, 1, (HO,)))
        found = await store.session_by_uid(session.uid)
        assert found is not None
        assert found.items == ([HI, HO] if kept else [HI])
        await store.commit(AddItems(session.uid, len(found.items), (HI,)))
    finally:
        store.close()
