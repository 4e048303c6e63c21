"""Faults and their outcomes: the rows of ``docs/operations/faults.md``, which the tests in this folder check."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client receives, and what is recorded.

    ``status``: HTTP's. ``code``: of the error, in the body or (on a stream) in its last frame but one; None: no error.
    ``event``: the status of the request in the event log. ``kind``: its label in ``groundlane_upstream_errors_total``;
    None if it isn't counted.
    """

    status: int
    code: str | None
    event: str
    kind: str | None = None

    @property
    def client(self) -> str:
        return f"{self.status}" if self.code is None else f"{self.status} `{self.code}`"

    @property
    def kept(self) -> str:
        counted = "" if self.kind is None else f', `kind="{self.kind}"`'
        return f"`{self.event}`{counted}"


UNREACHED = Told(status=502, code="upstream_unreachable", event="failed", kind="connect")
LATE = Told(status=504, code="upstream_timeout", event="failed", kind="timeout")
BROKEN = Told(status=200, code="upstream_unreachable", event="incomplete", kind="stream")
SILENT = Told(status=200, code="upstream_timeout", event="incomplete", kind="stream")
FINE = Told(status=200, code=None, event="completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFault:
    """``whole``: for a unary request; ``stream``: for a streamed request. ``logged``: there is a line
    ``upstream_failed``. ``hasty``: it needs short upstream timeouts."""

    id: str
    about: str
    whole: Told
    stream: Told
    logged: bool = False
    hasty: bool = False


def _before(id: str, about: str, told: Told = UNREACHED) -> UpstreamFault:
    """A fault before any byte of a reply."""
    return UpstreamFault(id=id, about=about, whole=told, stream=told, logged=True, hasty=told is LATE)


UPSTREAM_FAULTS = (
    _before("reset-before-head", "resets the connection before it responds"),
    _before("closed-before-head", "closes the connection before it responds"),
    _before("reset-in-head", "resets the connection while it sends headers"),
    _before("not-http", "doesn't respond with HTTP"),
    _before("endless-header", "sends an endless header"),
    _before("endless-headers", "sends endless headers"),
    _before("endless-interim", "sends endless `100 Continue` responses"),
    _before("odd-status", "responds with an invalid status (999)"),
    _before("length-no-number", "sends a `content-length` that isn't a number"),
    _before("two-lengths", "sends two different `content-length` headers"),
    _before("silent-before-head", "sends nothing", LATE),
    _before("silent-in-head", "stops sending in the middle of the headers", LATE),
    _before("dripping-head", "sends its headers byte by byte, exceeding the time limit", LATE),
    _before("silent-after-hints", "stops sending after `103 Early Hints`", LATE),
    UpstreamFault(
        id="silent-before-body", about="stops sending after the headers", whole=LATE, stream=SILENT, hasty=True
    ),
    UpstreamFault(
        id="silent-in-body", about="stops sending in the middle of the reply", whole=LATE, stream=SILENT, hasty=True
    ),
    UpstreamFault(
        id="reset-in-body", about="resets the connection in the middle of the reply", whole=UNREACHED, stream=BROKEN
    ),
    UpstreamFault(
        id="closed-in-body", about="closes the connection in the middle of the reply", whole=UNREACHED, stream=BROKEN
    ),
    UpstreamFault(
        id="reset-in-chunk", about="resets the connection in the middle of a chunk", whole=UNREACHED, stream=BROKEN
    ),
    UpstreamFault(id="bad-chunk", about="sends a malformed chunk", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(
        id="ends-early", about="ends the response before the reply is complete", whole=UNREACHED, stream=BROKEN
    ),
    UpstreamFault(id="not-json", about="responds with an HTML page", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="bad-gzip", about="declares gzip but doesn't send it", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="endless-body", about="sends an endless reply or event", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="dripping-body", about="sends its reply a few bytes at a time", whole=FINE, stream=FINE),
    UpstreamFault(id="bad-utf8", about="sends bytes that aren't valid UTF-8", whole=FINE, stream=FINE),
    UpstreamFault(id="bytes-after-end", about="sends data after the reply", whole=FINE, stream=FINE),
    UpstreamFault(
        id="never-closes", about="sends the whole reply but doesn't close the stream", whole=FINE, stream=FINE
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFault:
    """An upstream that can't be connected to. ``detail``: the cause in the log line ``upstream_failed``."""

    id: str
    about: str
    detail: str


CONNECTION_FAULTS = (
    ConnectionFault(id="refused", about="the upstream's port is closed", detail="Connect call failed"),
    ConnectionFault(id="unknown-name", about="the upstream's host name doesn't resolve", detail="upstream.invalid"),
    ConnectionFault(
        id="self-signed", about="the upstream's certificate is self-signed", detail="self-signed certificate"
    ),
    ConnectionFault(id="expired", about="the upstream's certificate has expired", detail="certificate has expired"),
    ConnectionFault(
        id="wrong-host", about="the upstream's certificate is for a different host", detail="IP address mismatch"
    ),
    ConnectionFault(id="no-tls", about="the upstream doesn't support TLS", detail="SSL"),
    ConnectionFault(id="silent-tls", about="the upstream doesn't respond to the TLS handshake", detail="Timeout"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Any other fault. ``client``, ``seen`` and ``kept`` are for the page; ``test`` is the test that verifies them."""

    id: str
    about: str
    client: str
    seen: str
    kept: str
    test: str


DATABASE_FAULTS = (
    Fault(
        id="database-away",
        about="PostgreSQL is stopped or unreachable",
        client="Normal service; policies and keys come from memory, and calls in a run use the policies in force. "
        "Calls that need the database (the admin API, `/v1/runs`): 503.",
        seen="`event_database_unavailable`, then `event_database_recovered`; `groundlane_events_journaled_total`; "
        "`/readyz`: `degraded` (`sync`: 503); `run_unavailable`, `run_call_lost` for calls in a run",
        kept="Events go to the journal and are replayed later. No event is lost or duplicated.",
        test="test_database.py::test_unavailable_server",
    ),
    Fault(
        id="database-silent",
        about="PostgreSQL accepts data but doesn't respond",
        client="`batched`: normal service. `sync`: the end of a reply waits up to 10 s, then the journal is used.",
        seen="As above; `/readyz`: `the database did not respond in time`",
        kept="As above.",
        test="test_database.py::test_unavailable_server",
    ),
    Fault(
        id="database-silent-at-the-end",
        about="the gateway is stopped while PostgreSQL doesn't respond",
        client="New connections are refused; open streams have the grace period to finish.",
        seen="–",
        kept="After 5 s, waiting events go to the journal, for the next start.",
        test="test_database.py::test_shutdown_while_the_server_is_silent",
    ),
    Fault(
        id="database-slow",
        about="PostgreSQL is slow",
        client="`batched`: normal service. `sync`: each reply ends once its event is committed.",
        seen="`groundlane_events_queue_depth` grows; above `GROUNDLANE_EVENT_QUEUE_LIMIT`, events go to the journal",
        kept="All events.",
        test="test_database.py::test_slow_server",
    ),
    Fault(
        id="database-locked",
        about="another process locks the SQLite file",
        client="`batched`: normal service. `sync`: the reply waits 5 s for the lock, then the journal is used.",
        seen="`event_database_unavailable` (`database is locked`)",
        kept="All events, as above.",
        test="test_database.py::test_locked_file",
    ),
    Fault(
        id="disk-full",
        about="the disk is full, so the database and the journal can't be written",
        client="`batched`: normal service. `sync`: 503 `event_not_stored`; in a stream, an error with that code.",
        seen="`event_database_unavailable` and `event_journal_unwritable`; if the memory queue is full too, "
        "`events_lost` and `groundlane_events_dropped_total`",
        kept="Up to `GROUNDLANE_EVENT_QUEUE_LIMIT` events wait in memory until there is space.",
        test="test_database.py::test_full_disk",
    ),
    Fault(
        id="replay-twice",
        about="a journal is replayed twice (a restored disk, a crash after the commit)",
        client="–",
        seen="–",
        kept="Each event is stored and counted once.",
        test="test_replay.py::test_restored_journal_adds_nothing",
    ),
    Fault(
        id="replay-in-pieces",
        about="a replay is interrupted, before or after the commit of any batch",
        client="–",
        seen="`event_database_unavailable`",
        kept="The next replay continues; each event is stored once.",
        test="test_replay.py::test_interrupted_replay_is_completed",
    ),
    Fault(
        id="replay-side-by-side",
        about="two gateways replay the same events at the same time",
        client="–",
        seen="–",
        kept="Each event is stored once.",
        test="test_replay.py::test_two_gateways_store_shared_events_once",
    ),
)

JUDGE_FAULTS = (
    Fault(
        id="judge-crash",
        about="an inference raises any exception, including an out-of-memory error",
        client="The reply; its claims are `unverifiable` with the reason `judge_error`, and policies act on that.",
        seen="A log line with the error; `groundlane_judge_failed_total`, `groundlane_unjudged_total`",
        kept="The event, with verdict and reasons. The next inference is attempted normally.",
        test="test_judge.py::test_crashing_judge",
    ),
    Fault(
        id="judge-crash-blocks",
        about="an inference fails under a policy that requires supported claims",
        client="The policy's action for unverifiable claims; in the test, a block.",
        seen="The decision",
        kept="The decision.",
        test="test_judge.py::test_crashing_judge_under_a_blocking_policy",
    ),
    Fault(
        id="judge-hang",
        about="an inference never ends",
        client="Each sentence becomes `unverifiable` with the reason `timeout` after `GROUNDLANE_JUDGE_TIMEOUT_MS`.",
        seen='`groundlane_unjudged_total{reason="timeout"}`; after 30 s `/readyz`: `has not answered for`',
        kept="The event.",
        test="test_judge.py::test_unresponsive_judge_shows_in_health",
    ),
    Fault(
        id="judge-stuck",
        about="the gateway is stopped while an inference never ends",
        client="–",
        seen="`judge threads are stuck and were abandoned`",
        kept="The process ends anyway, with its events written.",
        test="test_judge.py::test_stuck_thread_of_the_embedded_judge",
    ),
    Fault(
        id="judge-memory",
        about="the embedded judge runs out of memory",
        client="As for a failed inference.",
        seen="As for a failed inference",
        kept="The next request is judged.",
        test="test_judge.py::test_embedded_judge_out_of_memory",
    ),
    Fault(
        id="judge-elsewhere",
        about="a remote judge resets the connection or doesn't respond",
        client="The reply; its claims are `unverifiable` with the reason `judge_error` or `timeout`.",
        seen="As for a failed inference",
        kept="The event. The judge is called again for the next sentence.",
        test="test_judge.py::test_failing_remote_judge",
    ),
    Fault(
        id="judge-missing",
        about="the judge can't be loaded",
        client="Replies with the verdict `not_checked`; with `on_judge_unavailable: block`, blocked replies.",
        seen="`judge_unavailable` at startup; `/readyz`: `degraded`",
        kept="The event, with `judge_fault`.",
        test="test_judge.py::test_unloadable_judge",
    ),
)

PROCESS_FAULTS = (
    Fault(
        id="sigterm",
        about="SIGTERM under load",
        client="Requests in flight have `GROUNDLANE_SHUTDOWN_GRACE_S` to finish; new connections are refused.",
        seen="Requests that are cut off have the status `cancelled`",
        kept="Every request whose reply was completed, even with `batched`.",
        test="test_signals.py::test_sigterm_under_load",
    ),
    Fault(
        id="kill",
        about="`kill -9`, or the kernel's out-of-memory killer, under load",
        client="Connections break.",
        seen="–",
        kept="`sync`: every block that a client received. `batched`: all events except those of the last fraction of a "
        "second.",
        test="../e2e/operations/test_kill.py::test_no_acknowledged_block_is_missing_after_kill_9",
    ),
    Fault(
        id="clock-durations",
        about="the clock is changed by hours or years during a reply",
        client="No effect.",
        seen="Durations are correct; `ts` is the system clock's time when the request arrived",
        kept="All events.",
        test="test_clock.py::test_request_is_timed_by_a_monotonic_clock",
    ),
    Fault(
        id="clock-limits",
        about="the clock jumps back and forth between requests",
        client="Rate limits use a monotonic clock; ids stay unique.",
        seen="Policies are updated by version, not by time",
        kept="All events.",
        test="test_clock.py::test_ids_limits_and_changes_do_not_depend_on_the_clock",
    ),
    Fault(
        id="clock-retention",
        about="the clock jumps ahead, so the whole log appears too old",
        client="–",
        seen="`clock_changed`",
        kept="Nothing is deleted until the next pruning, an hour later.",
        test="test_clock.py::test_clock_change_deletes_nothing",
    ),
    Fault(
        id="clock-retention-back",
        about="a gateway pruned while its clock was ahead",
        client="–",
        seen="–",
        kept="Other gateways prune as scheduled.",
        test="test_clock.py::test_worker_with_a_fast_clock_does_not_delay_pruning_by_others",
    ),
)
