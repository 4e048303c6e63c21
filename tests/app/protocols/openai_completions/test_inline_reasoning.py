"""Think blocks at the beginning of a plain completion."""

from typing import Any

import pytest
from openai.types import Completion

from tests.support.apis.completions_api import choices_of, logprobs, part, stream, text_of, tokens, unary, whole
from tests.support.gateways.in_process_gateway import TRUE, bench, policy, sse, summary_of

pytestmark = pytest.mark.anyio

THOUGHT = "<think>It says 40 days.</think>\n\n"


@pytest.mark.parametrize("mode", ["hold", "live", "final", "whole"])
@pytest.mark.parametrize("action", ["pass", "drop"])
async def test_inline_reasoning_is_sent_or_removed_with_its_log_probabilities(mode: str, action: str) -> None:
    text = f"{THOUGHT}{TRUE}"
    given = policy(reasoning_action=action, stream_mode="hold" if mode == "whole" else mode, min_citations=0)
    pieces = tokens(text)
    if mode == "whole":
        body = await unary(await bench(whole(text, logprobs=logprobs(*pieces)), given))
        Completion.model_validate(body)
        delivered, summary = body["choices"][0]["text"], body["grounding"]
        told: list[Any] = body["choices"]
    else:
        parts = [
            part(piece, logprobs=logprobs(piece, offset=len("".join(pieces[:at])))) for at, piece in enumerate(pieces)
        ]
        made = await stream(await bench(sse(*parts, part("", "stop")), given))
        delivered, summary, told = text_of(made), summary_of(made), choices_of(made)
    assert delivered == (text if action == "pass" else TRUE)
    assert summary.get("not_checked") == (["reasoning"] if action == "pass" else None)
    (claim,) = summary["claims"]
    assert delivered[claim["span"]["start"] : claim["span"]["end"]] == TRUE
    spelled = "".join(token for choice in told for token in (choice.get("logprobs") or {}).get("tokens", ()))
    assert "40" not in spelled or action == "pass"
