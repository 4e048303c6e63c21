"""A citation is misattributed only if no document with the cited name supports its sentence."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.types import Citation, Phase, PolicyInputs
from tests.support.policy_builders import chunk, claim, found

CITED = Citation(marker="[p.pdf]", document_index=0, other_documents=(1,), sentence_index=0)


@pytest.mark.parametrize(
    ("support", "supported_by"),
    [({0: 0.1, 1: 0.9, 2: 0.1}, None), ({0: 0.9, 1: 0.1, 2: 0.1}, None), ({0: 0.1, 1: 0.1, 2: 0.9}, ["d2"])],
)
def test_any_document_with_the_name_may_support_the_sentence(
    support: Mapping[int, float], supported_by: list[str] | None
) -> None:
    sources = ("p.pdf", "p.pdf", "q.pdf")
    inputs = PolicyInputs(
        chunks=[chunk(index, source=source) for index, source in enumerate(sources)],
        claims=[claim(document=2, source="q.pdf", support=support)],
        citations=[CITED],
    )
    rules: dict[str, Any] = {"require_valid_citations": True, "min_citations": 0}
    violations = found("grounding", Phase.AFTER_WORKFLOW, rules, inputs)
    assert [each.metadata["supported_by"] for each in violations] == ([] if supported_by is None else [supported_by])
    assert [each.metadata["document_id"] for each in violations] == ([] if supported_by is None else ["d0"])
