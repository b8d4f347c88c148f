"""The connection to the store's database: opening, migrating, transactions. No table is named here."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from tenuto.errors import CommitUnsettled, ConfigurationError
from tenuto.sessions.private import make_private_file

READERS = 4
"""How many reads may go on at once, each with a connection of its own."""

_BUSY_TIMEOUT_S = 5
_PAGES_AT_ONCE = 1000
_JOURNAL_BYTES = 16 << 20
"""What of the write-ahead log stays on the disk once all of it is in the database."""
_LOST_LOOKS, _LOST_LOOK_S = 100, 0.05
_IS_ALIVE = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :process")
_END = text("SELECT pg_terminate_backend(:process)")
_MIGRATIONS = Path(__file__).parent / "migrations"
_SYNCHRONOUS = {"process": "NORMAL", "full": "FULL"}


class Database:
    """An open database whose tables are those of this version. Any thread; one transaction writes at a time."""

    def __init__(self, url: str, durability: str) -> None:
        if durability not in _SYNCHRONOUS:
            raise ConfigurationError(f"durability is {durability!r}; it can be {' or '.join(_SYNCHRONOUS)}")
        self._url = _parse(url)
        self._engine = self._connect(durability)
        # All of a database in memory is one connection, so its transactions take turns.
        self._turn: AbstractContextManager[Any] = threading.Lock() if self._in_memory else nullcontext()
        try:
            self._migrate()
        except (SQLAlchemyError, CommitUnsettled) as exc:
            self._engine.dispose()
            raise ConfigurationError(f"cannot open the store {self._url}: {getattr(exc, 'orig', None) or exc}") from exc
        except CommandError as exc:
            self._engine.dispose()
            raise ConfigurationError(f"the store {self._url} was written by another version of tenuto: {exc}") from exc

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database, with every commit that has returned."""
        with self._turn, self._engine.connect() as connection:
            if self.dialect == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that commits at the end of the block, or leaves nothing where the block raises.

        Raises:
            CommitUnsettled: the connection was lost in the commit, of which only the database knows what came of it.
        """
        process, is_over = None, False
        try:
            with self._turn, self._engine.begin() as connection:
                process = _process(connection)
                yield connection
                is_over = True
        except Exception as exc:
            if not is_over or (isinstance(exc, DBAPIError) and not exc.connection_invalidated):  # the database said no
                raise
            self._outlive(process)
            raise CommitUnsettled(f"the store was lost in a commit: {getattr(exc, 'orig', None) or exc}") from exc

    def shrink(self) -> None:
        """Give some of the pages that are free back to the disk."""
        if self.dialect == "sqlite":
            with self._turn, self._engine.connect() as connection:
                # Each page is a row without columns, and only a script is read to its end.
                driver: Any = connection.connection.driver_connection
                driver.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @property
    def _in_memory(self) -> bool:
        return self._url.get_backend_name() == "sqlite" and self._url.database in (None, "", ":memory:")

    def _outlive(self, process: int | None) -> None:
        """Let what a connection that was lost has begun come to its end, if the database can be reached by now.

        PostgreSQL goes on with a commit whose client has gone; who reads before its end reads what was before.
        """
        if process is None:
            return
        with suppress(SQLAlchemyError), self._engine.connect() as connection:
            for _ in range(_LOST_LOOKS):
                if not connection.execute(_IS_ALIVE, {"process": process}).scalar():
                    return
                time.sleep(_LOST_LOOK_S)
            connection.execute(_END, {"process": process})

    def _connect(self, durability: str) -> Engine:
        if self._url.get_backend_name() == "postgresql":
            return _create(self._url, pool_size=READERS + 1, max_overflow=0, pool_pre_ping=True)
        arguments = {"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False}
        if self._in_memory:
            engine = _create(self._url, poolclass=StaticPool, connect_args=arguments)
        else:
            self._make_file()
            engine = _create(self._url, pool_size=READERS + 1, max_overflow=0, connect_args=arguments)

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _record: object) -> None:
            # The driver would begin a transaction only at the first write; then several reads see several states.
            connection.isolation_level = None
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of use before there is a table
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA journal_size_limit={_JOURNAL_BYTES}")
            connection.execute(f"PRAGMA synchronous={_SYNCHRONOUS[durability]}")
            connection.execute("PRAGMA foreign_keys=ON")

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN")

        return engine

    def _make_file(self) -> None:
        """SQLite makes what lies beside the database with the mode of the database."""
        assert self._url.database is not None
        try:
            make_private_file(Path(self._url.database))
        except OSError as exc:
            raise ConfigurationError(f"cannot open the store {self._url}: {exc.strerror or exc}") from exc

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        with self.writing() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _process(connection: Connection) -> int | None:
    """The process of the database that serves a connection, where it has one."""
    info = getattr(connection.connection.driver_connection, "info", None)
    process: int | None = getattr(info, "backend_pid", None)
    return process


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as exc:
        raise ConfigurationError(f"the store's URL cannot be read: {exc}") from exc
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigurationError(f"the store can be sqlite or postgresql, not {parsed.get_backend_name()}")
    return parsed


def _create(url: URL, **options: Any) -> Engine:
    try:
        # Errors are logged and answered; what people wrote does not belong in them.
        return create_engine(url, hide_parameters=True, **options)
    except (ImportError, NoSuchModuleError) as exc:
        raise ConfigurationError(f"the driver for the store {url} is not installed: {exc}") from exc
