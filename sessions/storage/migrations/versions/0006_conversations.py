"""sessions as conversations: instructions for one answer alone, metadata, and the items that were taken away."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_SAME = "legs.session_uid = sessions.uid AND legs.instructed"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("instructed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("sessions", sa.Column("metadata", sa.Text()))
    op.add_column("sessions", sa.Column("removed", sa.Text()))
    op.execute(f"UPDATE sessions SET instructed = {sa.true()} WHERE EXISTS (SELECT 1 FROM legs WHERE {_SAME})")
    op.drop_column("legs", "instructed")


def downgrade() -> None:
    op.add_column("legs", sa.Column("instructed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.drop_column("sessions", "removed")
    op.drop_column("sessions", "metadata")
    op.drop_column("sessions", "instructed")
