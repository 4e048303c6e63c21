"""The record of a run doesn't depend on the order of its steps."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.runs.decisions import decide_completion
from app.runs.steps import RunRecord, RunStep, StepKind, citation_json, claim_json, document_json, texts_of, with_texts
from judges.types import Chunk, Claim, ClaimVerdict, Label, Source, Span
from policies.policy_selection import PolicySet, decision_to_dict
from policies.registry import parse_rules
from policies.types import Citation, Policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "run_1"


def steps_of(told: Sequence[tuple[StepKind, Mapping[str, Any]]]) -> list[RunStep]:
    return [RunStep(seq=seq, ts=NOW, kind=kind, data=data) for seq, (kind, data) in enumerate(told)]


def retrieval(**values: Any) -> tuple[StepKind, Mapping[str, Any]]:
    chunk = Chunk(**{"id": "", "text": "", **values})
    return StepKind.RETRIEVAL, {"document": document_json(chunk, RUN, keep_text=False)}


def verdict(text: str, label: Label, *, sentence: int = 0, document: int = 0) -> ClaimVerdict:
    source = Source(document_id="d", document_index=document, source="a.pdf", content="…", score=0.9, span=Span(3, 9))
    return ClaimVerdict(
        claim=Claim(text=text, span=Span(0, 5), sentence_index=sentence),
        label=label,
        entailed=0.9 if label is Label.SUPPORTED else 0.1,
        contradicted=0.9 if label is Label.CONTRADICTED else 0.05,
        best_source=source,
        support={document: 0.9},
    )


def call(
    name: str,
    documents: Sequence[Chunk] = (),
    claims: Sequence[ClaimVerdict] = (),
    citations: Sequence[Citation] = (),
    sentences: int = 1,
    **reported: Any,
) -> tuple[StepKind, Mapping[str, Any]]:
    return StepKind.CALL, {
        "request_id": name,
        "documents": [document_json(chunk, RUN, keep_text=False) for chunk in documents],
        "claims": [claim_json(claim) for claim in claims],
        "found_citations": [citation_json(citation, RUN, keep_text=True) for citation in citations],
        "sentences": sentences,
        **reported,
    }


A = Chunk(id="a", text="Staff receive 25 days.", source="a.pdf", relevance_score=0.9, age_days=3)
B = Chunk(id="b", text="Bicycles are parked outside.", source="b.pdf")

names = st.sampled_from(["a.pdf", "b.pdf", "Memo 4", "b"])
reports = st.fixed_dictionaries(
    {},
    optional={
        "grounding_scores": st.lists(st.floats(0, 1), max_size=3),
        "citations": st.lists(names, max_size=3),
        "unsupported_claims": st.lists(st.sampled_from(["It rains.", "It snows."]), max_size=2),
        "output_confidence": st.none() | st.floats(0, 1),
    },
)
calls = st.builds(
    lambda documents, labels, cited: call(
        "req",
        documents,
        [verdict(label.value, label, sentence=at, document=at % len(documents)) for at, label in enumerate(labels)],
        [Citation(marker=f"[{at + 1}]", document_index=at, sentence_index=0) for at in cited if at < len(documents)],
        sentences=len(labels),
    ),
    st.sampled_from([[A], [B], [A, B], [B, A]]),
    st.lists(st.sampled_from([Label.SUPPORTED, Label.CONTRADICTED, Label.UNVERIFIABLE]), max_size=4),
    st.lists(st.integers(0, 1), max_size=2),
)
told = st.lists(reports.map(lambda report: (StepKind.GROUNDING, report)) | calls, max_size=6)


def policies(**rules: Any) -> PolicySet:
    grounding = parse_rules("grounding", rules)
    return PolicySet(
        (
            Policy(id="g", name="g", category="grounding", rules=grounding),
            Policy(id="r", name="r", category="retrieval", rules=parse_rules("retrieval", {})),
        )
    )


def facts(recorded: RunRecord) -> dict[str, Any]:
    """The decision at the end, without values that depend on positions in the run."""
    ruled = policies(
        min_citations=3, max_unsupported_claims=1, abstention_threshold=0.5, max_unverifiable_ratio=0.2,
        require_source_grounding=True,
    )  # fmt: skip
    decisions = [decision_to_dict(made) for made in decide_completion(ruled, recorded).made]
    reasons = [sorted(decision["reason"].split("; ")) for decision in decisions]
    return {
        "reasons": reasons,
        "scores": sorted(recorded.scores),
        "cited": sorted(recorded.cited),
        "unsupported": sorted(recorded.unsupported),
        "confidence": recorded.output_confidence,
        "trust": recorded.trust_score,
        "documents": sorted(chunk.id for chunk in recorded.chunks),
        "claims": sorted(claim.claim.text for claim in recorded.claims),
    }


@given(told, st.randoms(use_true_random=False))
def test_order_of_reports_and_requests_does_not_matter(
    parts: list[tuple[StepKind, Mapping[str, Any]]], random: Any
) -> None:
    mixed = list(parts)
    random.shuffle(mixed)
    assert facts(RunRecord.of(steps_of(mixed))) == facts(RunRecord.of(steps_of(parts)))


@given(told, told)
def test_further_step_removes_nothing(
    before: list[tuple[StepKind, Mapping[str, Any]]], after: list[tuple[StepKind, Mapping[str, Any]]]
) -> None:
    first, whole = RunRecord.of(steps_of(before)), RunRecord.of(steps_of([*before, *after]))
    for name in ("chunks", "scores", "cited", "unsupported", "claims", "citations", "requests"):
        assert getattr(whole, name)[: len(getattr(first, name))] == getattr(first, name)
    if first.output_confidence is not None:
        assert whole.output_confidence is not None
        assert whole.output_confidence <= first.output_confidence


def test_documents_recorded_one_by_one_each_count() -> None:
    recorded = RunRecord.of(steps_of([retrieval(id="1", source="a"), retrieval(id="1", source="a")]))
    assert recorded.counts["documents"] == 2


def test_document_of_a_known_request_is_not_counted_again() -> None:
    other = Chunk(id="a", text="Another text.", source="a.pdf")
    recorded = RunRecord.of(
        steps_of(
            [
                retrieval(id="b", source="b.pdf"),
                call("1", [A]),
                call("2", [B, A], [verdict("x", Label.SUPPORTED, document=0)]),
                call("3", [other]),
            ]
        )
    )
    assert [(chunk.id, chunk.source) for chunk in recorded.chunks] == [("b", "b.pdf"), ("a", "a.pdf"), ("a", "a.pdf")]
    (claim,) = recorded.claims
    assert claim.best_source is not None
    assert (claim.best_source.document_index, dict(claim.support)) == (0, {0: 0.9})


def test_sentences_of_several_requests_are_distinguished() -> None:
    claims = [verdict("x", Label.SUPPORTED, sentence=1)]
    cited = [Citation(marker="[1]", document_index=0, sentence_index=1)]
    recorded = RunRecord.of(steps_of([call("1", [A], claims, cited, 2), call("2", [A], claims, cited, 2)]))
    assert [claim.claim.sentence_index for claim in recorded.claims] == [1, 3]
    assert [citation.sentence_index for citation in recorded.citations] == [1, 3]


def test_verdict_is_restored_for_policies() -> None:
    given_verdict = verdict("Staff receive 25 days.", Label.CONTRADICTED)
    (found,) = RunRecord.of(steps_of([call("1", [A], [given_verdict])])).claims
    assert (found.label, found.entailed, found.contradicted) == (Label.CONTRADICTED, 0.1, 0.9)
    assert found.claim.text == given_verdict.claim.text
    assert found.best_source is not None
    assert (found.best_source.source, found.best_source.score, found.best_source.span) == ("a.pdf", 0.9, Span(3, 9))


def test_texts_of_a_step_can_be_replaced_alone() -> None:
    _, data = call("1", [A], [verdict("It rains.", Label.SUPPORTED)], unsupported_claims=["It snows."])
    assert texts_of(data) == ["It snows.", "It rains."]
    less = with_texts(data, lambda text: text.upper())
    assert texts_of(less) == ["IT SNOWS.", "IT RAINS."]
    assert {name: less[name] for name in ("request_id", "documents")} == {
        name: data[name] for name in ("request_id", "documents")
    }
    assert texts_of(with_texts(data, lambda _: None)) == ["", ""]


def test_document_text_is_not_stored_and_its_digest_is_per_run() -> None:
    kept = document_json(A, "run_1", keep_text=False)
    assert "25 days" not in str(kept)
    assert kept["digest"] != document_json(A, "run_2", keep_text=False)["digest"]
    assert "digest" not in document_json(Chunk(id="a", text=""), "run_1", keep_text=True)
