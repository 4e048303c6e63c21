"""Store statistics next to each other if they are read together. Days are separate from hours, and the totals over all
policies are separate from the far more numerous rows of single policies."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEYS = {
    "request_statistics": ["step", "start", "policy_id", "agent", "model", "action"],
    "decision_statistics": [
        *("step", "start", "policy_id", "shadow", "category", "phase", "action", "reason_code", "agent", "model"),
    ],
}
STEPS = {"hours": 3_600, "days": 86_400}
BY_POLICY = "request_statistics"


def upgrade() -> None:
    rebuild(apart=True)


def downgrade() -> None:
    rebuild(apart=False)


def rebuild(*, apart: bool) -> None:
    for table, key in KEYS.items():
        if op.get_context().dialect.name == "sqlite":
            rebuild_sqlite(table, with_rowid=not apart)
        else:
            rebuild_postgresql(table, key, partitioned=apart)


def rebuild_sqlite(table: str, *, with_rowid: bool) -> None:
    """Without a row id, rows are stored in key order."""
    connection = op.get_bind()
    before = sa.Table(table, sa.MetaData(), autoload_with=connection)
    columns = [
        sa.Column(
            column.name,
            column.type,
            nullable=column.nullable,
            server_default=column.server_default if isinstance(column.server_default, sa.DefaultClause) else None,
            autoincrement=False,
        )
        for column in before.columns
    ]
    key = sa.PrimaryKeyConstraint(*KEYS[table], name=f"pk_{table}")
    op.create_table(f"new_{table}", *columns, key, sqlite_with_rowid=with_rowid)
    op.execute(f"INSERT INTO new_{table} SELECT * FROM {table} ORDER BY {', '.join(KEYS[table])}")
    op.drop_table(table)
    op.rename_table(f"new_{table}", table)


def rebuild_postgresql(table: str, key: list[str], *, partitioned: bool) -> None:
    by_step = " PARTITION BY LIST (step)" if partitioned else ""
    op.execute(f"CREATE TABLE new_{table} (LIKE {table} INCLUDING DEFAULTS){by_step}")
    for name, step in STEPS.items() if partitioned else ():
        part = f"{table}_{name}"
        further = " PARTITION BY LIST (policy_id)" if table == BY_POLICY else ""
        op.execute(f"CREATE TABLE {part} PARTITION OF new_{table} FOR VALUES IN ({step}){further}")
        if further:
            op.execute(f"CREATE TABLE {part}_all PARTITION OF {part} FOR VALUES IN ('')")
            op.execute(f"CREATE TABLE {part}_each PARTITION OF {part} DEFAULT")
    op.execute(f"INSERT INTO new_{table} SELECT * FROM {table} ORDER BY {', '.join(key)}")
    op.drop_table(table)
    op.rename_table(f"new_{table}", table)
    op.create_primary_key(f"pk_{table}", table, key)
