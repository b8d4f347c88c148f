"""what legs that go on after a crash need for that: where they stand, and what their open rounds have sampled."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("legs", sa.Column("progress", sa.Text()))
    op.create_table(
        "sampled",
        sa.Column("leg_id", sa.String(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("tokens", sa.LargeBinary(), nullable=False),
        sa.Column("logprobs", sa.Text()),
        sa.ForeignKeyConstraint(
            ["leg_id"],
            ["legs.id"],
            name=op.f("fk_sampled_leg_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("leg_id", "start", name=op.f("pk_sampled")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("sampled")
    op.drop_column("legs", "progress")
