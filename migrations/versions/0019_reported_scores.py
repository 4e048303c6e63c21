"""Add an index of the few requests with reported grounding scores."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

INDEX = "ix_requests_with_reported_scores"
ON_SQLITE = "json_extract(extra, '$.choices[0].record.reported_scores') IS NOT NULL"
ON_POSTGRESQL = "extra #> '{choices,0,record,reported_scores}' IS NOT NULL"


def upgrade() -> None:
    op.create_index(
        INDEX,
        "requests",
        ["ts", "request_id"],
        sqlite_where=sa.text(ON_SQLITE),
        postgresql_where=sa.text(ON_POSTGRESQL),
    )


def downgrade() -> None:
    op.drop_index(INDEX, "requests")
