"""Partition the event log by month on PostgreSQL, and store the time of the request in every row of an event."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEYS = {
    "requests": ["request_id"],
    "decisions": ["id"],
    "claims": ["request_id", "seq"],
    "documents": ["request_id", "position"],
}
INDEXES = {
    "requests": (
        ["action", "ts", "request_id"],
        ["agent", "ts", "request_id"],
        ["model", "ts", "request_id"],
        ["run_id", "ts"],
        ["ts", "request_id"],
    ),
    "decisions": (
        ["action", "ts", "id"],
        ["agent", "ts", "id"],
        ["model", "ts", "id"],
        ["phase", "ts", "id"],
        ["policy_id", "ts", "id"],
        ["reason_code", "ts", "id"],
        ["request_id", "position"],
        ["run_id", "ts", "id"],
        ["ts", "id"],
    ),
}
WITHOUT_TIME = ("claims", "documents")

# Create a partition for each month that has requests. The server creates future partitions.
MAKE_MONTHS = """
DO $$
DECLARE
    month timestamp;
    parent text;
BEGIN
    FOR month IN SELECT DISTINCT date_trunc('month', ts AT TIME ZONE 'UTC') FROM requests LOOP
        FOREACH parent IN ARRAY ARRAY['requests', 'decisions', 'claims', 'documents'] LOOP
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                parent || to_char(month, '_YYYY_MM'),
                'new_' || parent,
                to_char(month, 'YYYY-MM-01 "UTC"'),
                to_char(month + interval '1 month', 'YYYY-MM-01 "UTC"')
            );
        END LOOP;
    END LOOP;
END
$$
"""


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        add_times()
    else:
        partition()


def downgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        for table in WITHOUT_TIME:
            op.drop_column(table, "ts")
    else:
        join()


def add_times() -> None:
    for table in WITHOUT_TIME:
        op.add_column(table, sa.Column("ts", sa.DateTime(timezone=True)))
        op.execute(f"UPDATE {table} SET ts = (SELECT ts FROM requests WHERE requests.request_id = {table}.request_id)")
        # No table refers to these two, so copying them deletes no child rows.
        with op.batch_alter_table(table) as batch:
            batch.alter_column("ts", existing_type=sa.DateTime(timezone=True), nullable=False)


def partition() -> None:
    op.drop_constraint("fk_feedback_request_id", "feedback")
    for table in KEYS:
        time = ", ts timestamptz NOT NULL" if table in WITHOUT_TIME else ""
        op.execute(f"CREATE TABLE new_{table} (LIKE {table} INCLUDING DEFAULTS{time}) PARTITION BY RANGE (ts)")
        op.execute(f"CREATE TABLE {table}_default PARTITION OF new_{table} DEFAULT")
    op.execute(MAKE_MONTHS)
    for table in KEYS:
        rows = f"{table}.*, requests.ts FROM {table} JOIN requests USING (request_id)"
        op.execute(f"INSERT INTO new_{table} SELECT " + (rows if table in WITHOUT_TIME else f"* FROM {table}"))
    put_in_place(["ts"])


def join() -> None:
    for table in KEYS:
        op.execute(f"CREATE TABLE new_{table} (LIKE {table} INCLUDING DEFAULTS)")
        # Orphaned rows would violate the foreign keys.
        known = "" if table == "requests" else "WHERE request_id IN (SELECT request_id FROM requests)"
        op.execute(f"INSERT INTO new_{table} SELECT * FROM {table} {known}")
        if table in WITHOUT_TIME:
            op.drop_column(f"new_{table}", "ts")
    known = "SELECT FROM requests WHERE requests.request_id = feedback.request_id"
    op.execute(f"DELETE FROM feedback WHERE NOT EXISTS ({known})")
    put_in_place([])
    for table in ("decisions", "claims", "documents", "feedback"):
        name = f"fk_{table}_request_id"
        op.create_foreign_key(name, table, "requests", ["request_id"], ["request_id"], ondelete="CASCADE")


def put_in_place(time: list[str]) -> None:
    """Replace each table with ``new_…``. Keys and indexes are created after the rows, which is faster."""
    for table in reversed(KEYS):
        op.drop_table(table)
    for table, key in KEYS.items():
        op.rename_table(f"new_{table}", table)
        op.create_primary_key(f"pk_{table}", table, [*key, *time])
        for columns in INDEXES.get(table, ()):
            op.create_index("_".join(["ix", table, *columns]), table, columns)
