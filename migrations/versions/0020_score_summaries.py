"""Add the lowest and the average score of each request's claims and kept documents, computed from existing events."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

COLUMNS = ("lowest_claim_score", "average_claim_score", "lowest_relevance_score", "average_relevance_score")
# A single update, because PostgreSQL rewrites every row that an update changes.
FILL = """
UPDATE requests SET
    lowest_claim_score = summary.lowest_claim, average_claim_score = summary.average_claim,
    lowest_relevance_score = summary.lowest_relevance, average_relevance_score = summary.average_relevance
FROM (
    SELECT request_id, ts, min(claim) AS lowest_claim, avg(claim) AS average_claim,
        min(relevance) AS lowest_relevance, avg(relevance) AS average_relevance
    FROM (
        SELECT request_id, ts, score AS claim, CAST(NULL AS double precision) AS relevance
        FROM claims WHERE score IS NOT NULL AND reason IS NULL AND label <> 'not_a_claim'
        UNION ALL
        SELECT request_id, ts, NULL, relevance_score FROM documents WHERE relevance_score IS NOT NULL AND kept
    ) AS scores
    GROUP BY request_id, ts
) AS summary
WHERE requests.request_id = summary.request_id AND requests.ts = summary.ts
"""


def upgrade() -> None:
    for column in COLUMNS:
        op.add_column("requests", sa.Column(column, sa.Double()))
    op.execute(FILL)


def downgrade() -> None:
    for column in COLUMNS:
        op.drop_column("requests", column)
