"""Text checks with an LLM judge."""

import pytest

from app.settings import Settings
from app.text_checks.service import TextChecks
from judges.checker import GroundingChecker
from judges.llm_types import LlmVerdict
from judges.testing import ScriptedLlm
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
