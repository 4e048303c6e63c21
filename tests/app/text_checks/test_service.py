"""Text checks with an LLM judge."""

import pytest

from app.settings import Settings
from app.text_checks.service import TextChecks
from judges.checker import GroundingChecker
from judges.llm_types import LlmVerdict
from judges.testing import ScriptedJudge, ScriptedLlm, entails
from judges.types import Label
from policies.policy_selection import PolicyEngine
from tests.support.gateways.in_process_gateway import FALSE, TRUE, Events

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("correction", "reported"), [(TRUE, TRUE), (f"# {TRUE}", None), ("Permanent staff receive annual leave.", None)]
)
async def test_unsupported_correction_is_not_in_the_findings(correction: str, reported: str | None) -> None:
    opinions = {
        FALSE: LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, correction=correction),
        TRUE: LlmVerdict(label=Label.SUPPORTED, confidence=0.9),
    }
    checks = TextChecks(
        settings=Settings(_env_file=None, caller_llm_checks=True),
        checker=GroundingChecker(None, llm=ScriptedLlm(opinions)),
        engine=lambda: PolicyEngine([]),
        events=Events(),
    )
    body = {"text": FALSE, "sources": [TRUE], "options": {"contradiction_action": "correct"}}
    (claim,) = (await checks.check(body)).report.claims
    assert (claim.label, claim.correction) == (Label.CONTRADICTED, reported)


@pytest.mark.parametrize(
    ("text", "question", "verdict"),
    [
        ("Absolutely!", None, "has_unverifiable"),
        ("Absolutely!", " \n", "has_unverifiable"),
        ("Sure.", "", "has_unverifiable"),
        ("Yes.", None, "has_unverifiable"),
        ("Absolutely!", "Is leave paid?", "supported"),
        ("Absolutely!", "Thanks!", "no_claims"),
        ("Sure! Permanent staff receive leave.", "How does leave work?", "supported"),
        ("Yes.", "Thanks!", "has_unverifiable"),
    ],
)
async def test_answer_is_judged_with_the_question(text: str, question: str | None, verdict: str) -> None:
    checks = TextChecks(
        settings=Settings(_env_file=None),
        checker=GroundingChecker(ScriptedJudge(default=entails())),
        engine=lambda: PolicyEngine([]),
        events=Events(),
    )
    options = {"max_unverifiable_ratio": 0.0}
    checked = await checks.check({"text": text, "question": question, "sources": [TRUE], "options": options})
    assert checked.report.verdict.value == verdict
    assert checked.grounded is (verdict != "has_unverifiable")
