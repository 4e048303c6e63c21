"""Add an index to list feedback by time, and delete the labels of deleted requests."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# Earlier versions kept the labels when they dropped a month on PostgreSQL.
ORPHANS = """
DELETE FROM claim_labels
WHERE NOT EXISTS (SELECT 1 FROM requests WHERE requests.request_id = claim_labels.request_id)
"""


def upgrade() -> None:
    # Feedback is written by people, so the table is small. Even with a million rows, it is locked for only about a
    # second.
    op.create_index("ix_feedback_created_at_id", "feedback", ["created_at", "id"])
    op.execute(ORPHANS)


def downgrade() -> None:
    op.drop_index("ix_feedback_created_at_id", "feedback")
