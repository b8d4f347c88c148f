"""hints of clients."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("hint", sa.String()))


def downgrade() -> None:
    op.drop_column("sessions", "hint")
