"""first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notes",
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_notes")),
    )
    op.create_table(
        "sessions",
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=True),
        sa.Column("implicit", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("parent_uid", sa.String(), nullable=True),
        sa.Column("parent_at", sa.Integer(), nullable=True),
        sa.Column("server_tools", sa.Text(), nullable=True),
        sa.Column("approved", sa.Text(), nullable=False),
        sa.Column("open_run", sa.String(), nullable=True),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("visible_digest", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_sessions")),
        sa.UniqueConstraint("principal", "id", name=op.f("uq_sessions_principal")),
    )
    op.create_index("ix_sessions_created", "sessions", ["principal", "created_at", "id"])
    op.create_index("ix_sessions_expires", "sessions", ["expires_at"])
    op.create_index("ix_sessions_visible", "sessions", ["principal", "visible_digest", "user"])

    op.create_table(
        "items",
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["uid"],
            ["sessions.uid"],
            name=op.f("fk_items_uid"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("uid", "position", name=op.f("pk_items")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_uid", sa.String(), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("first_item", sa.Integer(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("stop_reason", sa.String(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("input_digest", sa.String(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_uid"],
            ["sessions.uid"],
            name=op.f("fk_runs_session_uid"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_session", "runs", ["session_uid", "created_at"])
    op.create_index("ix_runs_status", "runs", ["status"])

    op.create_table(
        "calls",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("call_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("server", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("repeatable", sa.Boolean(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
            name=op.f("fk_calls_run_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("run_id", "round", "position", name=op.f("pk_calls")),
    )
    op.create_table(
        "keys",
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("body_digest", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
            name=op.f("fk_keys_run_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("principal", "key", name=op.f("pk_keys")),
    )
    op.create_index("ix_keys_expires", "keys", ["expires_at"])
    op.create_index("ix_keys_run", "keys", ["run_id"])

    op.create_table(
        "pauses",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("session_uid", sa.String(), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("call_id", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("remember", sa.Boolean(), nullable=False),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
            name=op.f("fk_pauses_run_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pauses")),
    )
    op.create_index("ix_pauses_run", "pauses", ["run_id", "created_at"])
    op.create_index("ix_pauses_status", "pauses", ["status"])

    op.create_table(
        "spans",
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("tokens", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["uid", "position"],
            ["items.uid", "items.position"],
            name=op.f("fk_spans_uid"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("uid", "position", "fingerprint", name=op.f("pk_spans")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("spans")
    op.drop_index("ix_pauses_status", "pauses")
    op.drop_index("ix_pauses_run", "pauses")

    op.drop_table("pauses")
    op.drop_index("ix_keys_run", "keys")
    op.drop_index("ix_keys_expires", "keys")

    op.drop_table("keys")
    op.drop_table("calls")
    op.drop_index("ix_runs_status", "runs")
    op.drop_index("ix_runs_session", "runs")

    op.drop_table("runs")
    op.drop_table("items")
    op.drop_index("ix_sessions_visible", "sessions")
    op.drop_index("ix_sessions_expires", "sessions")
    op.drop_index("ix_sessions_created", "sessions")

    op.drop_table("sessions")
    op.drop_table("notes")
