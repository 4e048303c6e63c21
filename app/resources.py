"""Opens and closes all resources of a process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import structlog

from app.alerts.delivery_queue import AlertDeliveryQueue
from app.alerts.http_sender import MessageSender
from app.alerts.store import AlertStore
from app.alerts.watcher import AlertWatcher
from app.analytics.configured_prices import open_prices
from app.auth import KeyStore, RateLimiter, open_rate_limiter
from app.auth.admin_token import AdminAuth
from app.auth.secrets import Vault
from app.auth.token_throttle import WrongTokens
from app.budgets import BudgetGuard, BudgetStore
from app.config import load_config
from app.db.database import Database
from app.db.partitions import PartitionKeeper
from app.db.schema import check_schema, upgrade
from app.db.tables import BUDGET_REVISION, KEY_REVISION, POLICY_REVISION, SECRET_REVISION
from app.events.observers import Observer, Observers
from app.events.records import RecordedRequest, RequestEvent, RequestRow
from app.events.storage.retention import Retention
from app.events.storage.writer import EventWriter
from app.gateway.service import Gateway
from app.identity import Identity
from app.identity.oidc import OidcProvider, open_oidc
from app.judge_runtime.llm import llm_scores, open_llm_judge
from app.judge_runtime.remote_access import judge_access
from app.judge_runtime.stack import JudgeStack, open_checker
from app.observability import EventTotals, Metrics, log_often
from app.observability.tracing import Tracing
from app.policy_admin.bootstrap import bootstrap_policies
from app.policy_admin.policy_store import PolicyStore
from app.reply.checks.statement_checks import answering, cited_support, consistency
from app.runs.run_service import RunService
from app.settings import EventDurability, Settings
from app.text_checks.service import TextChecks
from app.upstream import OpenPaths, UpstreamClient
from app.worker_sync.change_notifications import ChangeWatcher
from app.worker_sync.worker_heartbeat import WorkerHeartbeat
from judges.checker import GroundingChecker
from judges.concurrency import TaskScope
from judges.cross_encoder import open_scorer
from judges.llm import LlmJudge, PriceTable
from judges.protocols import PairScorer
from policies.policy_warnings import GatewayFacts

_log = structlog.stdlib.get_logger(__name__)
_LINGER_S = 0.05
"""The maximum time in seconds that a finished request waits to be counted and logged in a batch with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The open resources of a process. Handlers access them through ``app.dependencies``."""

    settings: Settings
    database: Database
    policies: PolicyStore
    keys: KeyStore
    budgets: BudgetStore
    budget_guard: BudgetGuard
    limiter: RateLimiter
    vault: Vault
    events: EventWriter
    checker: GroundingChecker
    llm: LlmJudge
    upstream: UpstreamClient
    open_paths: OpenPaths
    admin: AdminAuth
    identity: Identity
    oidc: OidcProvider | None
    wrong_tokens: WrongTokens
    metrics: Metrics
    prices: PriceTable
    alert_deliveries: AlertDeliveryQueue
    gateway: Gateway
    runs: RunService
    checks: TextChecks

    @property
    def facts(self) -> GatewayFacts:
        """The facts about the gateway that policy warnings depend on."""
        return GatewayFacts(serves=self.upstream.serves, llm_fault=self.llm.fault, llm_model_fault=self.llm.fault_of)


@asynccontextmanager
async def open_resources(
    settings: Settings, scorer: PairScorer | None = None, tracing: Tracing | None = None
) -> AsyncIterator[Resources]:
    """Open all resources in order, and close them in reverse order, so that the last events are written before the
    database closes.

    ``scorer`` replaces the judge from the settings. ``tracing`` is shut down with the other resources. Raises
    SettingsError, DatabaseUrlError, DatabaseUnavailableError or SchemaError if the gateway cannot start.
    """
    config = load_config(settings)
    prices = open_prices(settings)
    async with AsyncExitStack() as stack:
        sync = settings.event_durability is EventDurability.SYNC
        database = Database(settings.database_url, durable=sync)
        stack.push_async_callback(database.aclose)
        if database.dialect == "sqlite":
            await asyncio.to_thread(upgrade, settings.database_url)
        await check_schema(database)
        policies, keys, vault = PolicyStore(database), KeyStore(database), Vault(database, settings.secret_key)
        budgets = BudgetStore(database)
        readers = {
            POLICY_REVISION: policies.refresh,
            KEY_REVISION: keys.refresh,
            SECRET_REVISION: vault.refresh,
            BUDGET_REVISION: budgets.refresh,
        }
        watch = ChangeWatcher(database, readers, poll_s=settings.policy_poll_s)
        await watch.start()
        stack.push_async_callback(watch.aclose)
        register = WorkerHeartbeat(database, policies)
        register.start()
        stack.push_async_callback(register.aclose)
        await bootstrap_policies(config.policies, policies)
        limiter = open_rate_limiter(settings.redis_url, counted_alone=lambda: metrics.observe_limit_alone())
        stack.push_async_callback(limiter.aclose)
        await limiter.fault()  # logs a misconfiguration at startup
        admin = await AdminAuth.open(database, settings.admin_token)
        partitions = PartitionKeeper(database)
        await partitions.start()
        stack.push_async_callback(partitions.aclose)
        events = EventWriter(
            database,
            durability=settings.event_durability,
            queue_limit=settings.event_queue_limit,
            journal_path=Path(settings.event_journal) if settings.event_journal else None,
        )
        await events.start()
        stack.push_async_callback(events.aclose)
        if settings.retention_days is not None:
            retention = Retention(database, days=settings.retention_days)
            retention.start()
            stack.push_async_callback(retention.aclose)
        llm = open_llm_judge(settings, config.upstreams, vault, lambda call: metrics.observe_llm_call(call))
        stack.push_async_callback(llm.aclose)
        access = judge_access(settings, vault, lambda call: metrics.observe_llm_call(call))
        backend = open_scorer(settings.judge, threads=settings.judge_threads, access=access)
        judge = JudgeStack(settings, backend if scorer is None else scorer)
        checker = open_checker(settings, judge.scorer, llm, stands_in=scorer is not None)
        stack.push_async_callback(checker.aclose)
        if settings.judge_preload:
            await checker.start()
            if settings.llm_judge_model is not None:
                await llm.start()
        if (fault := checker.fault or checker.error) is not None:
            in_its_place = checker.name if checker.available else "none"
            _log.warning("judge_unavailable", judge=settings.judge, detail=fault, in_its_place=in_its_place)
        if settings.llm_judge_model is not None and not llm.ready:
            _log.warning("llm_judge_unavailable", model=settings.llm_judge_model, detail=llm.fault)
        metrics = Metrics(
            judge=judge.totals, events=lambda: _event_totals(events), before=lambda: told.flush(), lag_s=2 * _LINGER_S
        )
        counting: list[Observer] = [metrics.observe_requests, partial(_observe_upstream, metrics), _log_requests]
        sender = MessageSender(private_addresses=settings.alert_private_addresses)
        stack.push_async_callback(sender.aclose)
        alerts = AlertStore(database, vault)
        alert_deliveries = AlertDeliveryQueue(database, alerts, sender, metrics.observe_alert_message)
        watcher = AlertWatcher(database, alerts, alert_deliveries, prices, metrics.observe_alert)
        watcher.start()
        stack.push_async_callback(watcher.aclose)
        told = Observers(counting, linger_s=_LINGER_S)
        stack.push_async_callback(told.aclose)
        sampling = TaskScope()
        stack.push_async_callback(sampling.aclose)
        sampling.start(metrics.keep_sampled())
        open_upstreams = UpstreamClient if tracing is None else tracing.upstreams
        upstream = open_upstreams(config.upstreams, keys=vault, observe=metrics.observe_upstream_error)
        stack.push_async_callback(upstream.aclose)
        open_paths = OpenPaths(settings.passthrough)
        if open_paths.everything:
            _log.warning(
                "passthrough_everything",
                detail="GROUNDLANE_PASSTHROUGH allows every path: replies on ungoverned paths are not checked",
            )
        budget_guard = BudgetGuard(database, budgets, prices.cost_of)
        budget_guard.start()
        stack.push_async_callback(budget_guard.aclose)
        observers: list[Callable[[RecordedRequest], None]] = [told, budget_guard.observe]
        if tracing is not None:
            observers.append(tracing.observe)
            stack.push_async_callback(asyncio.to_thread, tracing.shutdown)
        timeout_s = settings.judge_timeout_ms / 1e3
        final_checks = (
            llm_scores(llm),
            consistency(checker, timeout_s=timeout_s),
            cited_support(timeout_s=timeout_s),
            answering(),
        )
        runs = RunService(
            database=database,
            settings=settings,
            engine=lambda: policies.engine,
            events=events,
            observers=observers,
            score=llm.score,
            names_of=upstream.names_of,
        )
        yield Resources(
            settings=settings,
            database=database,
            policies=policies,
            keys=keys,
            budgets=budgets,
            budget_guard=budget_guard,
            limiter=limiter,
            vault=vault,
            events=events,
            checker=checker,
            llm=llm,
            upstream=upstream,
            open_paths=open_paths,
            admin=admin,
            identity=Identity(
                database,
                admin,
                idle=timedelta(seconds=settings.session_idle_s),
                lifetime=timedelta(seconds=settings.session_lifetime_s),
            ),
            oidc=open_oidc(settings, admin.session_key),
            wrong_tokens=WrongTokens(metrics.observe_wrong_admin_token),
            metrics=metrics,
            prices=prices,
            alert_deliveries=alert_deliveries,
            gateway=Gateway(
                settings=settings,
                upstream=upstream,
                policies=policies,
                checker=checker,
                events=events,
                observers=observers,
                final_checks=final_checks,
                runs=runs,
                budgets=budget_guard,
                on_dropped_field=metrics.observe_dropped_field,
            ),
            runs=runs,
            checks=TextChecks(
                settings=settings,
                checker=checker,
                engine=lambda: policies.engine,
                events=events,
                final_checks=final_checks,
                observers=observers,
            ),
        )


def _event_totals(events: EventWriter) -> EventTotals:
    return EventTotals(
        queue_depth=events.queue_depth,
        journal_bytes=events.journal_bytes,
        written=events.written,
        journaled=events.journaled,
        dropped=events.dropped,
        rejected=events.rejected,
    )


def _observe_upstream(metrics: Metrics, events: Sequence[RequestEvent]) -> None:
    for event in events:
        row = event.request
        match row.status, row.http_status:
            case "upstream_error", status if status >= HTTPStatus.BAD_REQUEST:
                server = status >= HTTPStatus.INTERNAL_SERVER_ERROR
                metrics.observe_upstream_error("status_5xx" if server else "status_4xx")
            case "failed", HTTPStatus.BAD_GATEWAY:
                metrics.observe_upstream_error("connect")
            case "failed", HTTPStatus.GATEWAY_TIMEOUT:
                metrics.observe_upstream_error("timeout")
            case (("incomplete" | "upstream_error"), _):
                metrics.observe_upstream_error("stream")


def _log_requests(events: Sequence[RequestEvent]) -> None:
    log_often(__name__, "request", [(_ended(event.request), _line(event)) for event in events])


def _ended(row: RequestRow) -> datetime:
    return row.ts + timedelta(milliseconds=row.total_ms)


def _line(event: RequestEvent) -> Mapping[str, Any]:
    row = event.request
    return {
        "request_id": row.request_id,
        "api": row.api,
        "model": row.model,
        "agent": row.agent,
        "stream": row.stream,
        "status": row.status,
        "http_status": row.http_status,
        "action": row.action,
        "verdict": row.verdict,
        "documents": row.documents,
        "sentences": row.sentences,
        "reason_codes": [decision.reason_code for decision in event.decisions if decision.reason_code],
        "upstream_ms": row.upstream_ms,
        "judge_ms": row.judge_ms,
        "total_ms": row.total_ms,
        "error": row.error,
    }
