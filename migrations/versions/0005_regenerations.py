"""Add the number of regenerations of a reply."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Added in place: batch mode copies the table on SQLite, which would delete its child rows.
    op.add_column("requests", sa.Column("regenerations", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("requests", "regenerations")
