"""what repeats, once."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

AT_ONCE = 200
NAMES_OF_BLOBS = (
    ("ix_sessions_tools", "sessions", "server_tools"),
    ("ix_runs_tools", "runs", "tools"),
    ("ix_runs_schema", "runs", "answer_schema"),
    ("ix_spans_base", "spans", "base"),
)

blobs = sa.table("blobs", sa.column("digest", sa.String), sa.column("body", sa.LargeBinary))
sessions = sa.table("sessions", sa.column("uid", sa.String), sa.column("server_tools", sa.Text))
runs = sa.table(
    "runs",
    sa.column("id", sa.String),
    sa.column("options", sa.Text),
    sa.column("tools", sa.String),
    sa.column("answer_schema", sa.String),
)


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_blobs")),
    )
    op.add_column("runs", sa.Column("tools", sa.String(), nullable=True))
    op.add_column("runs", sa.Column("answer_schema", sa.String(), nullable=True))
    op.add_column("spans", sa.Column("base", sa.String(), nullable=True))
    op.add_column("spans", sa.Column("head", sa.Integer(), nullable=True))
    op.add_column("spans", sa.Column("tail", sa.Integer(), nullable=True))
    connection = op.get_bind()
    _move_tools(connection)
    _move_options(connection)
    for index, table, column in NAMES_OF_BLOBS:
        named = sa.text(f"{column} IS NOT NULL")
        op.create_index(index, table, [column], sqlite_where=named, postgresql_where=named)
    op.execute("UPDATE sessions SET visible_digest = substr(visible_digest, 1, 32)")
    op.execute("UPDATE turns SET digest = substr(digest, 1, 32)")


def _move_tools(connection: sa.Connection) -> None:
    for rows in _pages(connection, sessions, sessions.c.uid, sessions.c.server_tools.is_not(None)):
        _save(connection, {text for _, text in rows})
        moved = [{"of": uid, "to": _digest(text)} for uid, text in rows]
        connection.execute(
            sa.update(sessions).where(sessions.c.uid == sa.bindparam("of")).values(server_tools=sa.bindparam("to")),
            moved,
        )


def _move_options(connection: sa.Connection) -> None:
    for rows in _pages(connection, runs, runs.c.id, sa.true()):
        texts: set[str] = set()
        moved = []
        for id, text in rows:
            options, tools, schema = _parted(text)
            texts |= {each for each in (tools, schema) if each is not None}
            moved.append({"of": id, "rest": options, "to_tools": _digest(tools), "to_schema": _digest(schema)})
        _save(connection, texts)
        statement = sa.update(runs).where(runs.c.id == sa.bindparam("of"))
        values = {name: sa.bindparam(of) for name, of in (("options", "rest"), ("tools", "to_tools"))}
        connection.execute(statement.values(**values, answer_schema=sa.bindparam("to_schema")), moved)


def _parted(text: str) -> tuple[str, str | None, str | None]:
    """A run's options without what repeats, and that: the tool block and the answer's schema."""
    try:
        options: dict[str, Any] = json.loads(text)
        block = {"client": options["client_tools"], "tools": options["tools"]}
    except (ValueError, KeyError, TypeError):  # another version's; nobody can read it, and it stays as it is
        return text, None, None
    schema = options.get("answer")
    rest = {name: value for name, value in options.items() if name not in ("tools", "client_tools", "answer")}
    return json.dumps(rest), json.dumps(block), None if schema is None else json.dumps(schema)


def _pages(
    connection: sa.Connection, table: sa.TableClause, key: Any, condition: Any
) -> Iterator[list[tuple[str, str]]]:
    column = table.c.server_tools if table is sessions else table.c.options
    last = ""
    while True:
        query = sa.select(key, column).where(key > last, condition).order_by(key).limit(AT_ONCE)
        rows = [(row[0], row[1]) for row in connection.execute(query)]
        if not rows:
            return
        yield rows
        last = rows[-1][0]


def _digest(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()[:40]


def _save(connection: sa.Connection, texts: set[str]) -> None:
    insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    rows = [{"digest": _digest(text), "body": text.encode()} for text in texts]
    if rows:
        connection.execute(insert(blobs).on_conflict_do_nothing(), rows)


def downgrade() -> None:
    raise NotImplementedError("an older version cannot read what is kept once")
