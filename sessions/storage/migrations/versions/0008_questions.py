"""what a server asks a person while its call waits."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pauses", sa.Column("question", sa.Text()))
    op.create_index("ix_pauses_asked", "pauses", ["principal", "reason", "status"])


def downgrade() -> None:
    op.drop_index("ix_pauses_asked", "pauses")
    op.drop_column("pauses", "question")
