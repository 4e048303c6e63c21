"""How often the upstream was asked to go on anew with a reply."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Added in place: to copy a table, as batch mode does on SQLite, would take its children with it.
    op.add_column("requests", sa.Column("regenerations", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("requests", "regenerations")
