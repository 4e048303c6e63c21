"""Add requests and tokens by gateway key, hour and day, filled from existing events."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

HOUR, DAY = 3_600, 86_400
KEYS = ("policy_id", "agent", "model", "key_prefix")
NUMBERS = {"requests": sa.Integer, "prompt_tokens": sa.Double, "completion_tokens": sa.Double}
COLUMNS = ", ".join(("step", '"start"', *KEYS, *NUMBERS))
NAMES = ", ".join(f"substr(coalesce(requests.{name}, ''), 1, 200)" for name in KEYS[1:])
SUMS = ", ".join(
    ("count(*)", *(f"sum(CAST(coalesce(requests.{name}, 0) AS double precision))" for name in list(NUMBERS)[1:]))
)
ASKED = """(SELECT DISTINCT request_id, ts, policy_id FROM decisions) AS asked
    JOIN requests ON requests.request_id = asked.request_id AND requests.ts = asked.ts"""


def upgrade() -> None:
    op.create_table(
        "usage_statistics",
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in KEYS),
        *(sa.Column(name, kind(), nullable=False, server_default="0") for name, kind in NUMBERS.items()),
        sa.PrimaryKeyConstraint("step", "start", *KEYS, name="pk_usage_statistics"),
        sqlite_with_rowid=False,
    )
    for policy, source in (("''", "requests"), ("asked.policy_id", ASKED)):
        fill(HOUR, "requests.ts", f"{policy}, {NAMES}", SUMS, source)
    fill(DAY, '"start"', ", ".join(KEYS), ", ".join(f"sum({name})" for name in NUMBERS), "usage_statistics")


def downgrade() -> None:
    op.drop_table("usage_statistics")


def fill(step: int, time: str, keys: str, sums: str, source: str) -> None:
    # GROUP BY refers to the column by position, because it doesn't accept a constant.
    places = ", ".join(str(place) for place in range(2, 3 + len(KEYS)))
    op.execute(
        f"INSERT INTO usage_statistics ({COLUMNS}) "
        f"SELECT {step}, {start_of(time, step)}, {keys}, {sums} FROM {source} GROUP BY {places}"
    )


def start_of(time: str, step: int) -> str:
    """Return the beginning of the hour or day, in the time format of the database."""
    if op.get_context().dialect.name != "sqlite":
        return f"date_trunc('{'hour' if step == HOUR else 'day'}', {time}, 'UTC')"
    # On SQLite, times are text, and SQLite's functions would round up.
    return f"substr({time}, 1, 13) || ':00:00.000000'" if step == HOUR else f"substr({time}, 1, 10) || ' 00:00:00.000000'"
