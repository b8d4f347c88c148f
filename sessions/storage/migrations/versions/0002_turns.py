"""turns by digest."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["uid", "position"],
            ["items.uid", "items.position"],
            name=op.f("fk_turns_uid"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("uid", "position", name=op.f("pk_turns")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_turns_digest", "turns", ["principal", "digest"])


def downgrade() -> None:
    op.drop_index("ix_turns_digest", "turns")

    op.drop_table("turns")
