"""The tables of the store. Definitions only; the migrations make them, and a test holds the two equal.

Times are seconds since the epoch; structured columns hold JSON text, so that every database keeps them as written.
Foreign keys are checked when a transaction commits, so the order of the changes within one commit does not matter.
"""

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


def _names_blobs(index: str, column: str) -> Index:
    """For the sweep of the blobs. Most rows name none, and need no entry."""
    named = text(f"{column} IS NOT NULL")
    return Index(index, column, sqlite_where=named, postgresql_where=named)


def _owner(column: str) -> ForeignKey:
    return ForeignKey(column, ondelete="CASCADE", deferrable=True, initially="DEFERRED")


sessions = Table(
    "sessions",
    metadata,
    Column("uid", String, primary_key=True),
    Column("principal", String, nullable=False),
    Column("id", String, nullable=False),
    Column("user", String),
    Column("implicit", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("parent_uid", String),
    Column("parent_at", Integer),
    Column("server_tools", Text),
    Column("server_instructions", Text),
    Column("approved", Text, nullable=False),
    Column("open_run", String),
    Column("items", Integer, nullable=False),
    Column("visible_digest", String, nullable=False),
    Column("hint", String),
    Column("instructed", Boolean, nullable=False, server_default=false()),
    Column("metadata", Text),
    Column("removed", Text),
    UniqueConstraint("principal", "id"),
    Index("ix_sessions_created", "principal", "created_at", "id"),
    Index("ix_sessions_visible", "principal", "visible_digest", "user"),
    Index("ix_sessions_expires", "expires_at"),
    _names_blobs("ix_sessions_tools", "server_tools"),
)
"""`visible_digest` names all items that the client saw; a request without a session id is matched by it.
`server_tools` names a blob."""

items = Table(
    "items",
    metadata,
    Column("uid", String, _owner("sessions.uid"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    # Clustered by key: a session is written at its end and read as one range.
    sqlite_with_rowid=False,
)

spans = Table(
    "spans",
    metadata,
    Column("uid", String, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", String, primary_key=True),
    Column("tokens", LargeBinary, nullable=False),
    Column("base", String),
    Column("head", Integer),
    Column("tail", Integer),
    # A ledger covers no item that is not there: an item that is cut takes its tokens with it.
    ForeignKeyConstraint(
        ["uid", "position"],
        ["items.uid", "items.position"],
        ondelete="CASCADE",
        deferrable=True,
        initially="DEFERRED",
    ),
    _names_blobs("ix_spans_base", "base"),
    sqlite_with_rowid=False,
)
"""`tokens`: the ids as little-endian uint32. Where `base` names a blob of such ids, they stand between its first `head`
and its last `tail` ids."""

turns = Table(
    "turns",
    metadata,
    Column("uid", String, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("principal", String, nullable=False),
    Column("digest", String, nullable=False),
    ForeignKeyConstraint(
        ["uid", "position"],
        ["items.uid", "items.position"],
        ondelete="CASCADE",
        deferrable=True,
        initially="DEFERRED",
    ),
    Index("ix_turns_digest", "principal", "digest"),
    sqlite_with_rowid=False,
)
"""`digest` names all items that the client saw up to the end of a turn, `position` the last of them."""

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("session_uid", String, _owner("sessions.uid"), nullable=False),
    Column("principal", String, nullable=False),
    Column("model", String, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("first_item", Integer, nullable=False),
    Column("options", Text, nullable=False),
    Column("usage", Text, nullable=False),
    Column("reason", String),
    Column("stop_reason", String),
    Column("expires_at", Double),
    Column("error", Text),
    Column("input_digest", String),
    Column("answer", Text),
    Column("tools", String),
    Column("answer_schema", String),
    Index("ix_runs_session", "session_uid", "created_at"),
    Index("ix_runs_status", "status"),
    _names_blobs("ix_runs_tools", "tools"),
    _names_blobs("ix_runs_schema", "answer_schema"),
)
"""`tools` and `answer_schema` name blobs: what of the options repeats from run to run."""

legs = Table(
    "legs",
    metadata,
    Column("id", String, primary_key=True),
    Column("run_id", String, _owner("runs.id"), nullable=False),
    Column("session_uid", String, nullable=False),
    Column("principal", String, nullable=False),
    Column("model", String, nullable=False),
    Column("first_item", Integer, nullable=False),
    Column("first_said", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("request", Text, nullable=False),
    Column("until", Integer),
    Column("status", String, nullable=False),
    Column("ended_at", Double),
    Column("usage", Text),
    Column("answer", Text),
    Column("progress", Text),
    Index("ix_legs_run", "run_id"),
    Index("ix_legs_session", "session_uid"),
)

told = Table(
    "told",
    metadata,
    Column("leg_id", String, _owner("legs.id"), primary_key=True),
    Column("start", Integer, primary_key=True, autoincrement=False),
    Column("events", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""What legs have told, in pieces. `start` is how many of a leg's events are in the pieces before."""

sampled = Table(
    "sampled",
    metadata,
    Column("leg_id", String, _owner("legs.id"), primary_key=True),
    Column("start", Integer, primary_key=True, autoincrement=False),
    Column("tokens", LargeBinary, nullable=False),
    Column("logprobs", Text),
    sqlite_with_rowid=False,
)
"""What the open rounds of legs have sampled, in pieces, as ids are kept in `spans`. `start` is how many of the round's
tokens are in the pieces before."""

blobs = Table(
    "blobs",
    metadata,
    Column("digest", String, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
"""What repeats, once. Every commit that names a blob brings it; one that no row names any more is swept."""

NAMES_OF_BLOBS = (sessions.c.server_tools, runs.c.tools, runs.c.answer_schema, spans.c.base)
"""The columns that hold digests of blobs; a blob is kept while one of them has its own."""

calls = Table(
    "calls",
    metadata,
    Column("run_id", String, _owner("runs.id"), primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("call_id", String, nullable=False),
    Column("name", String, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("server", Boolean, nullable=False),
    Column("status", String, nullable=False),
    Column("repeatable", Boolean, nullable=False),
    Column("result", Text),
    Column("started_at", Double),
    Column("finished_at", Double),
)

pauses = Table(
    "pauses",
    metadata,
    Column("id", String, primary_key=True),
    Column("run_id", String, _owner("runs.id"), nullable=False),
    Column("session_uid", String, nullable=False),
    Column("principal", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("call_id", String, nullable=False),
    Column("tool", String, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("message", Text),
    Column("remember", Boolean, nullable=False),
    Column("decided_at", Double),
    Column("question", Text),
    Index("ix_pauses_run", "run_id", "created_at"),
    Index("ix_pauses_asked", "principal", "reason", "status"),
    Index("ix_pauses_status", "status"),
)

keys = Table(
    "keys",
    metadata,
    Column("principal", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("run_id", String, _owner("runs.id"), nullable=False),
    Column("body_digest", String, nullable=False),
    Column("expires_at", Double, nullable=False),
    Index("ix_keys_run", "run_id"),
    Index("ix_keys_expires", "expires_at"),
)

notes = Table(
    "notes",
    metadata,
    Column("scope", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("text", Text, nullable=False),
)
"""`position` keeps the order in which a scope's notes were first written."""
