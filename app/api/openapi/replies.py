"""The replies that handlers serialize themselves, by operation."""

from collections.abc import Mapping

from pydantic import BaseModel

from app.api.openapi.admin_replies import (
    AuditPage,
    Calibration,
    Liveness,
    PolicyQualityPage,
    ReadinessReport,
    RuleSchemas,
    SimulationReport,
    StatisticsReport,
    TemplatePage,
    UpstreamPage,
    UsageReport,
)
from app.api.openapi.event_replies import DecisionPage, RequestFacetCounts, RequestPage, Trace
from app.api.openapi.llm_replies import ChatCompletion, CheckReport, Completion, MessagesReply, ResponsesReply
from app.api.openapi.run_replies import Run, RunListPage, RunStepReply, RunTrace

REPLIES: Mapping[str, type[BaseModel]] = {
    "alive": Liveness,
    "ready": ReadinessReport,
    "list_templates": TemplatePage,
    "get_schema": RuleSchemas,
    "simulate_unsaved": SimulationReport,
    "simulate_saved": SimulationReport,
    "list_events": DecisionPage,
    "list_requests": RequestPage,
    "count_facets": RequestFacetCounts,
    "get_request": Trace,
    "get_stats": StatisticsReport,
    "get_usage": UsageReport,
    "get_calibration": Calibration,
    "get_quality": PolicyQualityPage,
    "list_upstreams": UpstreamPage,
    "list_audit": AuditPage,
    "create_chat_completion": ChatCompletion,
    "create_completion": Completion,
    "create_response": ResponsesReply,
    "create_message": MessagesReply,
    "start_run": RunStepReply,
    "record_retrieval": RunStepReply,
    "record_grounding": RunStepReply,
    "complete_run": RunStepReply,
    "get_run": Run,
    "list_runs": RunListPage,
    "show_run": RunTrace,
    "check_grounding": CheckReport,
}
