"""legs that clients can ask for by their ids."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "legs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("session_uid", sa.String(), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("first_item", sa.Integer(), nullable=False),
        sa.Column("first_said", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("instructed", sa.Boolean(), nullable=False),
        sa.Column("until", sa.Integer()),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("usage", sa.Text()),
        sa.Column("answer", sa.Text()),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
            name=op.f("fk_legs_run_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_legs")),
    )
    op.create_index("ix_legs_run", "legs", ["run_id"])
    op.create_index("ix_legs_session", "legs", ["session_uid"])
    op.create_table(
        "told",
        sa.Column("leg_id", sa.String(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("events", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["leg_id"],
            ["legs.id"],
            name=op.f("fk_told_leg_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("leg_id", "start", name=op.f("pk_told")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("told")
    op.drop_index("ix_legs_session", "legs")
    op.drop_index("ix_legs_run", "legs")
    op.drop_table("legs")
