"""What goes wrong, and its outcome: the rows of ``docs/operations/faults.md``, which the tests of this folder check."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client is told, and what is kept of it.

    ``status``: HTTP's. ``code``: of the error, in the body or (on a stream) in its last frame but one; None: no error.
    ``event``: the status of the request in the event log. ``kind``: what ``groundlane_upstream_errors_total`` counts it
    under; None: not at all.
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
    """``whole``: to a request for one answer; ``stream``: to one for a stream. ``logged``: there is a line
    ``upstream_failed``. ``hasty``: it takes an upstream's timeouts to show."""

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
    _before("reset-before-head", "breaks the connection off before it answers"),
    _before("closed-before-head", "closes the connection before it answers"),
    _before("reset-in-head", "breaks off within the headers"),
    _before("not-http", "speaks no HTTP"),
    _before("endless-header", "sends a header without end"),
    _before("endless-headers", "sends headers without end"),
    _before("endless-interim", "sends `100 Continue` without end"),
    _before("odd-status", "answers with a status that HTTP has not (999)"),
    _before("length-no-number", "sends a `content-length` that is no number"),
    _before("two-lengths", "sends two `content-length` that differ"),
    _before("silent-before-head", "says nothing", LATE),
    _before("silent-in-head", "falls silent within the headers", LATE),
    _before("dripping-head", "sends its headers byte by byte, for longer than a head may take", LATE),
    _before("silent-after-hints", "falls silent after `103 Early Hints`", LATE),
    UpstreamFault(
        id="silent-before-body", about="falls silent after the headers", whole=LATE, stream=SILENT, hasty=True
    ),
    UpstreamFault(id="silent-in-body", about="falls silent within the reply", whole=LATE, stream=SILENT, hasty=True),
    UpstreamFault(id="reset-in-body", about="breaks off within the reply", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="closed-in-body", about="closes within the reply", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="reset-in-chunk", about="breaks off within a chunk", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="bad-chunk", about="frames a chunk wrongly", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="ends-early", about="ends an unfinished reply in good order", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="not-json", about="answers with a page of HTML", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="bad-gzip", about="says gzip and sends none", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="endless-body", about="sends a reply, or an event, without end", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="dripping-body", about="sends its reply in pieces of a few bytes", whole=FINE, stream=FINE),
    UpstreamFault(id="bad-utf8", about="sends bytes that are no UTF-8", whole=FINE, stream=FINE),
    UpstreamFault(id="bytes-after-end", about="sends more than the reply", whole=FINE, stream=FINE),
    UpstreamFault(id="never-closes", about="says all and does not end", whole=FINE, stream=FINE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFault:
    """An upstream that no connection comes about with. ``detail``: what the line ``upstream_failed`` says of it."""

    id: str
    about: str
    detail: str


CONNECTION_FAULTS = (
    ConnectionFault(id="refused", about="nobody listens", detail="Connect call failed"),
    ConnectionFault(id="unknown-name", about="its name does not resolve", detail="upstream.invalid"),
    ConnectionFault(id="self-signed", about="its certificate is signed by itself", detail="self-signed certificate"),
    ConnectionFault(id="expired", about="its certificate has expired", detail="certificate has expired"),
    ConnectionFault(id="wrong-host", about="its certificate is another host's", detail="IP address mismatch"),
    ConnectionFault(id="no-tls", about="it speaks no TLS where it should", detail="SSL"),
    ConnectionFault(id="silent-tls", about="it says nothing where it should speak TLS", detail="Timeout"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Any other fault. ``client``, ``seen`` and ``kept`` are for the page; ``test`` is what holds them to be true."""

    id: str
    about: str
    client: str
    seen: str
    kept: str
    test: str


DATABASE_FAULTS = (
    Fault(
        id="database-away",
        about="PostgreSQL is stopped, or the way to it is cut",
        client="All as usual; policies and keys from memory, a run's call by those in force now. "
        "Calls about what is in it (the admin API, `/v1/runs`): 503.",
        seen="`event_database_away`, then `event_database_back`; `groundlane_events_journaled_total`; `/readyz`: "
        "`degraded` (`sync`: 503); `run_unavailable`, `run_call_lost` for calls of a run",
        kept="Events in the journal, replayed when it is back. Nothing is lost, nothing is there twice.",
        test="test_database.py::test_a_server_that_is_away",
    ),
    Fault(
        id="database-silent",
        about="PostgreSQL takes what it is sent and says nothing",
        client="`batched`: as usual. `sync`: the end of a reply waits up to 10 s, then the journal stands in.",
        seen="As above; `/readyz` says `no answer in time`",
        kept="The same.",
        test="test_database.py::test_a_server_that_is_away",
    ),
    Fault(
        id="database-silent-at-the-end",
        about="and the gateway is stopped meanwhile",
        client="The port closes; open streams have their grace period.",
        seen="–",
        kept="After 5 s what waits goes to the journal, for the next start.",
        test="test_database.py::test_a_gateway_that_ends_while_its_server_is_silent",
    ),
    Fault(
        id="database-slow",
        about="PostgreSQL is slow",
        client="`batched`: as usual. `sync`: each reply ends when its event is committed.",
        seen="`groundlane_events_queue_depth` grows; over `GROUNDLANE_EVENT_QUEUE_LIMIT` events go to the journal",
        kept="All.",
        test="test_database.py::test_a_server_that_is_slow",
    ),
    Fault(
        id="database-locked",
        about="another process holds the SQLite file",
        client="`batched`: as usual. `sync`: waits 5 s for the lock, then the journal stands in.",
        seen="`event_database_away` (`database is locked`)",
        kept="All, as above.",
        test="test_database.py::test_a_locked_file",
    ),
    Fault(
        id="disk-full",
        about="the disk is full: neither the database nor the journal can be written",
        client="`batched`: as usual. `sync`: 503 `event_not_stored`; on a stream an error with that code.",
        seen="`event_database_away` and `event_journal_away`; what finds no room in memory either is "
        "`events_lost` and counts in `groundlane_events_dropped_total`",
        kept="Up to `GROUNDLANE_EVENT_QUEUE_LIMIT` events wait in memory until there is room.",
        test="test_database.py::test_a_full_disk",
    ),
    Fault(
        id="replay-twice",
        about="a journal is replayed twice: a restored disk, a crash after the commit",
        client="–",
        seen="–",
        kept="Each event once, and once in the statistics.",
        test="test_replay.py::test_a_journal_that_comes_back_adds_nothing",
    ),
    Fault(
        id="replay-in-pieces",
        about="a replay is cut short, before or after the commit of any piece",
        client="–",
        seen="`event_database_away`",
        kept="The next replay goes on; each event once.",
        test="test_replay.py::test_a_replay_that_is_cut_short_is_made_up_for",
    ),
    Fault(
        id="replay-side-by-side",
        about="two gateways replay the same events at once",
        client="–",
        seen="–",
        kept="Each event once.",
        test="test_replay.py::test_two_gateways_that_find_the_same_events_store_them_once",
    ),
)

JUDGE_FAULTS = (
    Fault(
        id="judge-crash",
        about="an inference fails, whatever with (an exception, memory that runs out)",
        client="The reply, its claims `unverifiable`, reason `judge_error`; policies decide on that.",
        seen="A line with the error; `groundlane_judge_failed_total`, `groundlane_unjudged_total`",
        kept="The event with verdict and reasons; the next inference is tried as usual.",
        test="test_judge.py::test_a_judge_that_crashes",
    ),
    Fault(
        id="judge-crash-blocks",
        about="the same, under a policy that wants claims to be supported",
        client="What the policy says of unverifiable claims: here a block.",
        seen="The decision",
        kept="The decision.",
        test="test_judge.py::test_a_judge_that_crashes_under_a_policy_that_blocks",
    ),
    Fault(
        id="judge-hang",
        about="an inference does not end",
        client="Each sentence after `GROUNDLANE_JUDGE_TIMEOUT_MS`, `unverifiable`, reason `timeout`.",
        seen='`groundlane_unjudged_total{reason="timeout"}`; after 30 s `/readyz`: `has not answered for`',
        kept="The event.",
        test="test_judge.py::test_a_judge_that_never_answers_shows_in_health",
    ),
    Fault(
        id="judge-stuck",
        about="and the gateway is stopped meanwhile",
        client="–",
        seen="`threads of the judge do not end and are left behind`",
        kept="The process ends all the same, with its events written.",
        test="test_judge.py::test_a_thread_of_the_embedded_judge_is_stuck",
    ),
    Fault(
        id="judge-memory",
        about="memory runs out in the embedded judge",
        client="As for any crash.",
        seen="As for any crash",
        kept="The next request is judged.",
        test="test_judge.py::test_memory_runs_out_in_the_embedded_judge",
    ),
    Fault(
        id="judge-elsewhere",
        about="a judge that is served elsewhere breaks off or says nothing",
        client="The reply, claims `unverifiable`: `judge_error` or `timeout`.",
        seen="As for any crash",
        kept="The event; it is asked again for the next sentence.",
        test="test_judge.py::test_a_judge_that_is_served_elsewhere_fails",
    ),
    Fault(
        id="judge-missing",
        about="the judge cannot be loaded",
        client="Replies marked `not_checked`, or refused where `on_judge_unavailable` says so.",
        seen="`judge_unavailable` at the start; `/readyz`: `degraded`",
        kept="The event, with `judge_fault`.",
        test="test_judge.py::test_a_judge_that_cannot_be_loaded",
    ),
)

PROCESS_FAULTS = (
    Fault(
        id="sigterm",
        about="SIGTERM under load",
        client="What is under way has `GROUNDLANE_SHUTDOWN_GRACE_S` to end; new connections are refused.",
        seen="A request that is cut is `cancelled`",
        kept="Every request whose reply came to its end, `batched` too.",
        test="test_signals.py::test_sigterm_under_load",
    ),
    Fault(
        id="kill",
        about="`kill -9`, or the kernel for want of memory, under load",
        client="Connections break.",
        seen="Nothing: it is dead",
        kept="`sync`: every block that a client was told of. `batched`: all but what waited, a fraction of a second.",
        test="../e2e/test_kill.py::test_no_acknowledged_block_is_missing_after_kill_9",
    ),
    Fault(
        id="clock-durations",
        about="the clock is set while a reply comes in, by hours or years",
        client="Nothing of it.",
        seen="Durations are right; `ts` is when the request came, by the clock of then",
        kept="All.",
        test="test_clock.py::test_a_request_is_timed_by_a_clock_that_only_counts",
    ),
    Fault(
        id="clock-limits",
        about="the clock goes back and forth between requests",
        client="Rate limits go by a clock that only counts; no id comes twice.",
        seen="Policies change by version, not by time",
        kept="All.",
        test="test_clock.py::test_ids_limits_and_changes_do_not_hang_on_the_clock",
    ),
    Fault(
        id="clock-retention",
        about="the clock jumps ahead, so that all of the log looks too old",
        client="–",
        seen="`clock_was_set`",
        kept="Nothing is deleted before the next turn, an hour later.",
        test="test_clock.py::test_a_clock_that_was_set_deletes_nothing",
    ),
    Fault(
        id="clock-retention-back",
        about="a gateway pruned while its clock ran ahead",
        client="–",
        seen="–",
        kept="The others prune in their turn all the same.",
        test="test_clock.py::test_who_pruned_with_a_clock_ahead_does_not_put_off_the_others",
    ),
)
