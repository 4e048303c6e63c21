"""The first tables."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("models", JSON, nullable=False),
        sa.Column("requests_per_minute", sa.Integer()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("hash", name="uq_api_keys_hash"),
    )
    op.create_index("ix_api_keys_prefix", "api_keys", ["prefix"])

    op.create_table(
        "meta",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("category", sa.String(), nullable=False),
        sa.Column("rules", JSON, nullable=False),
        sa.Column("scope", JSON, nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policies"),
        sa.UniqueConstraint("name", name="uq_policies_name"),
    )
    op.create_table(
        "policy_versions",
        sa.Column("policy_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("change", sa.String(), nullable=False),
        sa.Column("ts", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("category", sa.String(), nullable=False),
        sa.Column("rules", JSON, nullable=False),
        sa.Column("scope", JSON, nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("policy_id", "version", name="pk_policy_versions"),
    )
    op.create_table(
        "requests",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("ts", sa.DateTime(timezone=True), nullable=False),
        sa.Column("api", sa.String(), nullable=False),
        sa.Column("model", sa.String()),
        sa.Column("resolved_model", sa.String()),
        sa.Column("agent", sa.String()),
        sa.Column("run_id", sa.String()),
        sa.Column("key_prefix", sa.String()),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("trust_score", sa.Double()),
        sa.Column("documents", sa.Integer(), nullable=False),
        sa.Column("sentences", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger()),
        sa.Column("completion_tokens", sa.BigInteger()),
        sa.Column("usage_estimated", sa.Boolean(), nullable=False),
        sa.Column("upstream_ms", sa.Double()),
        sa.Column("judge_ms", sa.Double()),
        sa.Column("total_ms", sa.Double(), nullable=False),
        sa.Column("finish_reason", sa.String()),
        sa.Column("error", sa.Text()),
        sa.Column("prompt", sa.Text()),
        sa.Column("reply", sa.Text()),
        sa.PrimaryKeyConstraint("request_id", name="pk_requests"),
    )
    op.create_index("ix_requests_action_ts_request_id", "requests", ["action", "ts", "request_id"])
    op.create_index("ix_requests_agent_ts_request_id", "requests", ["agent", "ts", "request_id"])
    op.create_index("ix_requests_model_ts_request_id", "requests", ["model", "ts", "request_id"])
    op.create_index("ix_requests_run_id_ts", "requests", ["run_id", "ts"])
    op.create_index("ix_requests_ts_request_id", "requests", ["ts", "request_id"])

    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String()),
        sa.Column("key_prefix", sa.String()),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_created_at_run_id", "runs", ["created_at", "run_id"])

    op.create_table(
        "claims",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("choice", sa.Integer(), nullable=False),
        sa.Column("sentence_index", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("score", sa.Double()),
        sa.Column("confidence", sa.Double()),
        sa.Column("document_id", sa.String()),
        sa.Column("document_index", sa.Integer()),
        sa.Column("evidence_start", sa.Integer()),
        sa.Column("evidence_end", sa.Integer()),
        sa.Column("delivered", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String()),
        sa.Column("judge_ms", sa.Double()),
        sa.Column("text", sa.Text()),
        sa.Column("evidence", sa.Text()),
        sa.Column("extra", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.request_id"], name="fk_claims_request_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("request_id", "seq", name="pk_claims"),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String()),
        sa.Column("ts", sa.DateTime(timezone=True), nullable=False),
        sa.Column("agent", sa.String()),
        sa.Column("model", sa.String()),
        sa.Column("policy_id", sa.String(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("policy_name", sa.String(), nullable=False),
        sa.Column("category", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.String()),
        sa.Column("metadata", JSON, nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.request_id"], name="fk_decisions_request_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
    )
    op.create_index("ix_decisions_action_ts_id", "decisions", ["action", "ts", "id"])
    op.create_index("ix_decisions_agent_ts_id", "decisions", ["agent", "ts", "id"])
    op.create_index("ix_decisions_model_ts_id", "decisions", ["model", "ts", "id"])
    op.create_index("ix_decisions_phase_ts_id", "decisions", ["phase", "ts", "id"])
    op.create_index("ix_decisions_policy_id_ts_id", "decisions", ["policy_id", "ts", "id"])
    op.create_index("ix_decisions_reason_code_ts_id", "decisions", ["reason_code", "ts", "id"])
    op.create_index("ix_decisions_request_id_position", "decisions", ["request_id", "position"])
    op.create_index("ix_decisions_ts_id", "decisions", ["ts", "id"])

    op.create_table(
        "documents",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.String(), nullable=False),
        sa.Column("source", sa.String()),
        sa.Column("collection", sa.String()),
        sa.Column("relevance_score", sa.Double()),
        sa.Column("age_days", sa.Double()),
        sa.Column("title", sa.Text()),
        sa.Column("url", sa.Text()),
        sa.Column("kept", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("text", sa.Text()),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.request_id"], name="fk_documents_request_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("request_id", "position", name="pk_documents"),
    )
    op.create_table(
        "feedback",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("decision_id", sa.String()),
        sa.Column("correct", sa.Boolean(), nullable=False),
        sa.Column("note", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.request_id"], name="fk_feedback_request_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_feedback"),
    )
    op.create_index("ix_feedback_request_id", "feedback", ["request_id"])
    # Every worker watches this counter to notice policy changes.
    op.execute("INSERT INTO meta (key, value) VALUES ('policy_revision', '0')")


def downgrade() -> None:
    for table in (
        "feedback",
        "documents",
        "decisions",
        "claims",
        "runs",
        "requests",
        "policy_versions",
        "policies",
        "meta",
        "api_keys",
    ):
        op.drop_table(table)
