"""Add rollups of requests and decisions by hour and day, filled from existing events."""

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

HOUR, DAY = 3_600, 86_400
MIDNIGHT = "00:00:00.000000"
BOUNDS = [2.0**power for power in range(-4, 17)]
VERDICTS = ("supported", "has_contradictions", "has_unverifiable", "no_claims", "no_sources", "not_checked")
STATUSES = ("completed", "blocked", "cancelled", "incomplete", "upstream_error", "failed")
REST = "total_ms - coalesce(upstream_ms, 0.0) - coalesce(judge_ms, 0.0)"
PARTS = {
    "total": "total_ms",
    "upstream": "upstream_ms",
    "judge": "judge_ms",
    "gateway": f"CASE WHEN {REST} > 0.0 THEN {REST} ELSE 0.0 END",
}
NAMES = {"agent": "substr(coalesce({0}.agent, ''), 1, 200)", "model": "substr(coalesce({0}.model, ''), 1, 200)"}
KEYS: Mapping[str, Mapping[str, type[sa.String | sa.Boolean]]] = {
    "request_statistics": {"policy_id": sa.String, "agent": sa.String, "model": sa.String, "action": sa.String},
    "decision_statistics": {
        "policy_id": sa.String,
        "shadow": sa.Boolean,
        "category": sa.String,
        "phase": sa.String,
        "action": sa.String,
        "reason_code": sa.String,
        "agent": sa.String,
        "model": sa.String,
    },
}


def upgrade() -> None:
    sums = {"request_statistics": request_sums(), "decision_statistics": decision_sums()}
    for table, keys in KEYS.items():
        named = [sa.Column("policy_name", sa.String(), nullable=False)] if table == "decision_statistics" else []
        op.create_table(
            table,
            sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
            sa.Column("start", sa.DateTime(timezone=True), nullable=False),
            *(sa.Column(name, kind(), nullable=False) for name, kind in keys.items()),
            *named,
            *(
                sa.Column(name, sa.Double() if is_sum(name) else sa.Integer(), nullable=False, server_default="0")
                for name in sums[table]
            ),
            sa.PrimaryKeyConstraint("step", "start", *keys, name=f"pk_{table}"),
        )
    fill(sums)


def downgrade() -> None:
    for table in KEYS:
        op.drop_table(table)


def is_sum(name: str) -> bool:
    """Return whether a number may be fractional or larger than an integer."""
    return name.endswith(("_ms", "_max", "_sum", "_tokens"))


def request_sums() -> dict[str, str]:
    """Return, by name, the expression that each number is the sum of."""
    found = {"requests": "1"}
    found |= {f"verdict_{name}": f"CASE WHEN verdict = '{name}' THEN 1 ELSE 0 END" for name in VERDICTS}
    found |= {f"status_{name}": f"CASE WHEN status = '{name}' THEN 1 ELSE 0 END" for name in STATUSES}
    found |= {name: f"CAST(coalesce({name}, 0) AS {double()})" for name in ("prompt_tokens", "completion_tokens")}
    found["trust_count"] = "CASE WHEN trust_score IS NULL THEN 0 ELSE 1 END"
    found["trust_sum"] = "coalesce(trust_score, 0.0)"
    for part, value in PARTS.items():
        found |= latency(part, value)
    return found


def decision_sums() -> dict[str, str]:
    return {"decisions": "1", **latency("latency", "latency_ms")}


def latency(part: str, value: str) -> dict[str, str]:
    """Return the condition for each bin. A null value falls into no bin, because it is neither above nor below a
    bound."""
    found = {
        f"{part}_count": f"CASE WHEN {value} IS NULL THEN 0 ELSE 1 END",
        f"{part}_ms": f"coalesce({value}, 0.0)",
        f"{part}_max": f"coalesce({value}, 0.0)",
    }
    for bin, (low, high) in enumerate(zip([None, *BOUNDS], [*BOUNDS, None], strict=True)):
        ends = [f"{value} > {low}"] * (low is not None) + [f"{value} <= {high}"] * (high is not None)
        found[f"{part}_{bin:02d}"] = f"CASE WHEN {' AND '.join(ends)} THEN 1 ELSE 0 END"
    return found


def double() -> str:
    return "REAL" if on_sqlite() else "double precision"


def on_sqlite() -> bool:
    return bool(op.get_context().dialect.name == "sqlite")


def start_of(time: str, step: int) -> str:
    """Return the beginning of the hour or day, in the time format of the database."""
    if on_sqlite():
        # On SQLite, times are text, and SQLite's functions would round up.
        return (
            f"substr({time}, 1, 13) || ':00:00.000000'" if step == HOUR else f"substr({time}, 1, 10) || ' {MIDNIGHT}'"
        )
    return f"date_trunc('{'hour' if step == HOUR else 'day'}', {time}, 'UTC')"


def fill(sums: Mapping[str, Mapping[str, str]]) -> None:
    values = dict(sums["request_statistics"])
    of_request = {name: name_of.format("requests") for name, name_of in NAMES.items()} | {"action": "requests.action"}
    asked = "(SELECT DISTINCT request_id, ts, policy_id FROM decisions) AS asked"
    joined = f"{asked} JOIN requests ON requests.request_id = asked.request_id AND requests.ts = asked.ts"
    insert("request_statistics", {"policy_id": "''", **of_request}, values, "requests", "requests.ts")
    insert("request_statistics", {"policy_id": "asked.policy_id", **of_request}, values, joined, "requests.ts")
    of_decision = {name: name for name in KEYS["decision_statistics"]} | {"reason_code": "coalesce(reason_code, '')"}
    of_decision |= {name: name_of.format("decisions") for name, name_of in NAMES.items()}
    values = {"policy_name": "policy_name", **sums["decision_statistics"]}
    insert("decision_statistics", of_decision, values, "decisions", "ts")
    for table, keys in KEYS.items():
        names = {**dict.fromkeys(sums[table]), **({"policy_name": None} if table == "decision_statistics" else {})}
        insert(table, {name: name for name in keys}, {name: name for name in names}, table, "start", DAY)


def insert(
    table: str, keys: Mapping[str, str], values: Mapping[str, str], source: str, time: str, step: int = HOUR
) -> None:
    columns = ", ".join(f'"{name}"' for name in ("step", "start", *keys, *values))
    taken = [
        f"max({value})" if name.endswith("_max") or name == "policy_name" else f"sum({value})"
        for name, value in values.items()
    ]
    grouped = [start_of(time, step), *keys.values()]
    # GROUP BY refers to the column by position, because it doesn't accept a constant.
    places = ", ".join(str(place) for place in range(2, 2 + len(grouped)))
    op.execute(
        " ".join(
            [
                f"INSERT INTO {table} ({columns})",
                f"SELECT {step}, {', '.join([*grouped, *taken])}",
                f"FROM {source} GROUP BY {places}",
            ]
        )
    )
