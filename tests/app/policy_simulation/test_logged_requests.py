"""A simulation over the event log predicts the later decisions."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from app.db.database import Database
from app.errors import PolicyBlockedError
from app.events.filters import EventFilter
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from app.policy_simulation import SimulationSummary, simulate_logged
from app.policy_simulation.comparison import DecisionBrief, SimulatedOutcome
from judges.testing import ScriptedJudge
from judges.types import Probabilities
from policies.policy_selection import PolicyEngine
from policies.replay import CUT_OFF, DOCUMENTS, NO_REPLY, NOT_JUDGED, SOURCES, THRESHOLDS
from policies.types import Policy, Scope
from tests.support.gateways.in_process_gateway import bench, policy, said, whole

pytestmark = pytest.mark.anyio

TOWNS = ("Aarau", "Bremen", "Cadiz", "Dover", "Esbjerg", "Faro", "Ghent", "Haarlem")
ONE_DOCUMENT = [{"id": "towns", "text": "The office opens early or late.", "relevance_score": 0.9, "age_days": 3}]
Request = tuple[list[str], dict[str, Any]]


def sentence(town: str) -> str:
    return f"The office in {town} opens early."


def judged(_evidence: str, claim: str) -> Probabilities:
    """Each town has its own scores, some of them at a threshold."""
    scores = {
        "Aarau": (0.98, 0.01),
        "Bremen": (0.7, 0.2),
        "Cadiz": (0.69, 0.1),
        "Dover": (0.001, 0.998),
        "Esbjerg": (0.3, 0.7),
        "Faro": (0.01, 0.01),
        "Ghent": (0.85, 0.1),
        "Haarlem": (0.5, 0.45),
    }
    entailed, contradicted = next((scores[town] for town in TOWNS if town in claim), (0.0, 0.0))
    return Probabilities(entailed, 1.0 - entailed - contradicted, contradicted)


def requests(count: int, seed: int) -> list[Request]:
    """Requests of every kind: none, one or many documents, reported findings, citations, streamed or whole."""
    chance = random.Random(seed)
    made: list[Request] = []
    for number in range(count):
        documents = [
            {
                "id": f"d{number}-{index}",
                "text": " ".join(sentence(town) for town in chance.sample(TOWNS, 3)),
                "source": chance.choice(["a.pdf", "b.pdf", "c.pdf"]),
                "collection": chance.choice(["kb", "hr", None]),
                "relevance_score": chance.choice([0.2, 0.7, 0.71, 0.95, None]),
                "age_days": chance.choice([0, 90, 91, 400, 12.5]),
            }
            for index in range(chance.choice([0, 1, 1, 2, 3, 5]))
        ]
        grounding: dict[str, Any] = {"inject": chance.choice(["none", "system"])}
        if chance.random() < 0.3:
            grounding["reported"] = {
                "grounding_scores": [chance.choice([0.2, 0.7, 0.9]) for _ in range(chance.randint(0, 3))],
                "citations": chance.sample(["a.pdf", "elsewhere", "b.pdf"], chance.randint(0, 2)),
                "unsupported_claims": ["It rains."] * chance.randint(0, 2),
                "output_confidence": chance.choice([None, 0.3, 0.9]),
            }
        texts = []
        for town in chance.sample(TOWNS, chance.randint(0, 4)):
            mark = chance.choice(["", "", f" [{chance.randint(1, 4)}]"])
            texts.append(sentence(town)[:-1] + mark + ". ")
        made.append((texts or ["Hello! "], {"documents": documents, "grounding": grounding}))
    return made


async def happened(policies: Sequence[Policy], made: Sequence[Request], **settings: Any) -> list[RequestEvent]:
    """The event of each request under ``policies``; every other request is streamed."""
    events = []
    for number, (texts, fields) in enumerate(made):
        streamed = number % 2 == 0
        answer = said(*texts) if streamed else whole("".join(texts))
        at = await bench(answer, *policies, judge=ScriptedJudge(judged), settings=settings)
        with suppress(PolicyBlockedError):
            await (at.stream if streamed else at.unary)(**fields)
        events.append(at.event)
    return events


@asynccontextmanager
async def logged(url: str, events: Sequence[RequestEvent]) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        await store(database, [event_rows(event) for event in events])
        yield database
    finally:
        await database.aclose()


async def simulated(
    database: Database, policies: Sequence[Policy], candidate: Policy, *, limit: int = 1_000, show: int = 1_000
) -> SimulationSummary:
    tally, _ = await simulate_logged(
        database,
        PolicyEngine(policies),
        candidate,
        EventFilter(),
        limit=limit,
        show=show,
        key_names=lambda prefix: prefix,
        model_names=lambda model: model,
    )
    return tally


def outcome(event: RequestEvent) -> SimulatedOutcome:
    return SimulatedOutcome.of(event.request.action, map(DecisionBrief.of, event.decisions))


WATCHING = [policy(min_citations=0), policy("retrieval", action_on_stale_source="warn", min_chunks=0)]
CANDIDATES = [
    policy(contradiction_action="block", min_citations=0),
    policy(unverifiable_action="strip", max_unverifiable_ratio=1.0, min_citations=1, action_on_violation="block"),
    policy(unverifiable_action="block", max_unverifiable_ratio=0.4),
    policy(require_source_grounding=True, min_citations=2, action_on_violation="block"),
    policy(require_valid_citations=True, max_unsupported_claims=0, min_citations=0, action_on_violation="block"),
    policy(score_eval_mode="average", min_grounding_score=0.6, action_on_violation="block", min_citations=0),
    policy(score_eval_mode="top_n", score_top_n=2, score_relevance_floor=0.1, action_on_violation="block"),
    policy(abstention_threshold=0.6, action_on_violation="block", min_citations=0),
    policy(score_source="reported", min_citations=0, action_on_violation="block"),
    policy(score_source="retrieval", min_citations=0, action_on_violation="block"),
    policy(entailment_threshold=0.5, contradiction_threshold=0.95, contradiction_action="block", min_citations=0),
    policy(max_claims=1, max_unsupported_claims=0, action_on_violation="block", min_citations=0),
    policy(unjudged_action="allow", min_citations=0),
    policy(unjudged_action="strip", min_citations=0),
    policy(unjudged_action="block", min_citations=0),
    policy(min_coverage=0.99, action_on_violation="block", min_citations=0),
    policy(stream_mode="live", unverifiable_action="strip", contradiction_action="block"),
    policy(stream_mode="final", contradiction_action="block"),
    policy("retrieval", min_relevance_score=0.71, action_on_low_relevance="block", on_missing_metadata="warn"),
    policy("retrieval", action_on_stale_source="drop", min_chunks=2, max_chunks=2, action_on_chunk_violation="drop"),
    policy("retrieval", require_documents=True, allowed_collections=["kb"], on_missing_metadata="block"),
    policy("retrieval", require_source_diversity=True, action_on_domination="block", action_on_stale_source="warn"),
]


@pytest.mark.parametrize("store_text", ["full", "hash"])
async def test_simulation_predicts_the_actual_decisions(database_url: str, store_text: str) -> None:
    """Sixty requests are logged under two shadow policies. The simulated decisions of another policy are the same, word
    for word, as its later decisions on the same requests. Doubts are only reported if the judge would have to judge
    again.
    """
    made = requests(60, seed=20)
    seen = await happened(WATCHING, made, store_text=store_text)
    actions: Counter[str] = Counter()
    async with logged(database_url, seen) as database:
        for candidate in CANDIDATES:
            beside = [one for one in WATCHING if one.id != candidate.id]
            foretold = await simulated(database, WATCHING, candidate)
            then = await happened([*beside, candidate], made, store_text=store_text)
            told = {item.request_id: item for item in foretold.items}
            doubtful = 0
            for before, after in zip(seen, then, strict=True):
                item = told.get(before.request.request_id)
                if item is not None and item.doubts:
                    doubtful += 1
                    continue
                expected = outcome(before) if item is None else item.after
                assert outcome(after) == expected, candidate.rules
                assert item is None or item.before == outcome(before)
                actions[outcome(after).action] += 1
            assert foretold.requests == len(made)
            assert doubtful <= len(made) / 2
    assert min(actions[action] for action in ("allow", "warn", "block")) > 100


async def doubts(url: str, policies: Sequence[Policy], candidate: Policy, texts: list[str], **fields: Any) -> Any:
    events = await happened(policies, [(texts, {"documents": ONE_DOCUMENT, **fields})])
    async with logged(url, events) as database:
        return (await simulated(database, policies, candidate)).summary()["doubts"]


TWO = [*ONE_DOCUMENT, {"id": "old", "text": sentence("Faro"), "relevance_score": 0.9, "age_days": 400}]


@pytest.mark.parametrize(
    ("in_force", "candidate", "fields", "doubt"),
    [
        (policy("retrieval", max_source_age_days=1), policy("retrieval"), {}, NO_REPLY),
        (policy(contradiction_action="block"), policy(), {}, CUT_OFF),
        (
            policy("retrieval", action_on_stale_source="warn"),
            policy("retrieval", action_on_stale_source="drop"),
            {"documents": TWO, "grounding": {"inject": "system"}},
            DOCUMENTS,
        ),
        (policy(), policy(entailment_threshold=0.99), {"documents": TWO}, THRESHOLDS),
        (policy(), policy(max_sources_per_claim=9), {}, SOURCES),
    ],
)
async def test_uncertain_outcomes_are_reported(
    database_url: str, in_force: Policy, candidate: Policy, fields: dict[str, Any], doubt: str
) -> None:
    """A second grounding policy has the replies judged, even if the changed policy is a retrieval policy."""
    watching = replace(policy(), id="watching", name="watching")
    texts = [sentence("Dover"), " ", sentence("Aarau")]
    found = await doubts(database_url, [watching, in_force], candidate, texts, **fields)
    assert found == {doubt: 1}


async def test_unjudged_reply_is_uncertain(database_url: str) -> None:
    events = await happened([], [([sentence("Aarau")], {"documents": ONE_DOCUMENT})], annotate_by_default=False)
    async with logged(database_url, events) as database:
        tally = await simulated(database, [], policy())
    assert tally.summary()["doubts"] == {NOT_JUDGED: 1}


async def test_counts_sum_up_the_outcomes(database_url: str) -> None:
    texts = [[sentence("Aarau")], [sentence("Dover")], [sentence("Dover")], [sentence("Faro")]]
    fields = {"documents": ONE_DOCUMENT}
    events = await happened([policy(min_citations=0)], [(one, fields) for one in texts])
    async with logged(database_url, events) as database:
        tally = await simulated(
            database, [policy(min_citations=0)], policy(min_citations=0, contradiction_action="block"), show=1
        )
        summary = tally.summary()
        assert (summary["requests"], summary["changed"], summary["uncertain"]) == (4, 2, 0)
        assert summary["actions"] == {"allow": {"allow": 1}, "warn": {"block": 2, "warn": 1}}
        assert Counter(summary["reason_codes"]["after"])["GROUNDING_CONTRADICTION"] == 2
        assert len(tally.items) == 1
        out_of_scope = replace(policy(contradiction_action="block"), scope=Scope(agents=("another",)))
        assert (await simulated(database, [policy(min_citations=0)], out_of_scope)).summary()["actions"] == {
            "allow": {"allow": 1},
            "warn": {"allow": 3},
        }


@pytest.mark.parametrize(
    "since_then",
    [
        pytest.param([], id="a policy was deleted"),
        pytest.param([policy(min_citations=0, contradiction_action="block")], id="a policy became stricter"),
        pytest.param([replace(policy(min_citations=0), mode="shadow")], id="a policy went into shadow"),
    ],
)
async def test_policy_is_not_blamed_for_decisions_of_others(database_url: str, since_then: list[Policy]) -> None:
    """The log was written under a different policy than the current one. The draft applies to no request, so it changes
    nothing.
    """
    texts = [[sentence("Aarau")], [sentence("Dover")], [sentence("Faro")]]
    events = await happened([policy(min_citations=0)], [(one, {"documents": ONE_DOCUMENT}) for one in texts])
    draft = replace(policy(unverifiable_action="block"), id="draft", name="draft")
    nobodys = replace(draft, scope=Scope(agents=("nobody",)))
    async with logged(database_url, events) as database:
        assert (await simulated(database, since_then, nobodys)).summary()["changed"] == 0
        everybodys = await simulated(database, since_then, draft)
    # Each difference is a decision of the draft.
    assert everybodys.changed
    for item in everybodys.items:
        added = [one for one in item.after.decisions if one not in item.before.decisions]
        assert {one.policy_id for one in added} == {"draft"}


async def test_rows_of_an_earlier_version_are_counted_as_unreadable(database_url: str) -> None:
    (event,) = await happened([policy()], [([sentence("Dover")], {"documents": ONE_DOCUMENT})])
    old = replace(event, request=structs.replace(event.request, extra={}))
    async with logged(database_url, [old]) as database:
        tally = await simulated(database, [], policy())
    assert (tally.requests, tally.unreadable) == (0, 1)


async def test_model_scope_matches_the_names_at_the_upstreams(database_url: str) -> None:
    (event,) = await happened([policy()], [([sentence("Dover")], {"documents": ONE_DOCUMENT})])
    strict = replace(policy(contradiction_action="block", min_citations=0), scope=Scope(models=("real-*",)))
    async with logged(database_url, [event]) as database:
        for names, blocked in (((event.request.model,), 0), ((event.request.model, "real-1"), 1)):
            tally, _ = await simulate_logged(
                database,
                PolicyEngine([]),
                strict,
                EventFilter(),
                limit=10,
                show=10,
                key_names=lambda prefix: prefix,
                model_names={event.request.model: names}.get,
            )
            assert sum(item.after.action == "block" for item in tally.items) == blocked


async def test_long_log_is_read_in_batches(database_url: str) -> None:
    (event,) = await happened([policy()], [([sentence("Aarau")], {"documents": ONE_DOCUMENT})])
    events = [
        replace(event, request=structs.replace(event.request, request_id=f"req_{number:05d}"))
        for number in range(1_203)
    ]
    async with logged(database_url, events) as database:
        seen, after = 0, None
        for expected in (600, 600, 3):
            tally, after = await simulate_logged(
                database,
                PolicyEngine([]),
                policy(),
                EventFilter(),
                limit=600,
                show=0,
                key_names=lambda prefix: prefix,
                model_names=lambda model: model,
                after=after,
            )
            assert tally.requests == expected
            seen += tally.requests
        assert (seen, after) == (1_203, None)
