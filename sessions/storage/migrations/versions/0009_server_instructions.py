"""what servers of tools said of their use when a session began."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("server_instructions", sa.Text()))


def downgrade() -> None:
    op.drop_column("sessions", "server_instructions")
