"""The LLM judge in the gateway: responses, decisions, the event log, and every kind of failure."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.config import UpstreamSpec
from app.events.replay_data import LoggedRows, read_log
from app.judge_runtime.llm import LlmKeys, llm_scores, open_llm_judge
from app.review.labels import disputes
from app.settings import Settings, SettingsError, UpstreamApi
from judges.llm import Endpoint, LlmJudge
from judges.llm.openai_chat_model import LlmCompletion
from judges.llm.prompts import Prompt
from judges.llm_types import LlmVerdict, ScoreRequest
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.testing import NEUTRAL, ScriptedJudge, ScriptedLlm
from judges.types import Label
from tests.support.gateways.in_process_gateway import (
    FALSE,
    TRUE,
    UNKNOWN,
    Bench,
    bench,
    finish_of,
    policy,
    said,
    summary_of,
    text_of,
    whole,
)

pytestmark = pytest.mark.anyio


class Secrets:
    """Keys by name; none by default."""

    def __init__(self, **keys: str) -> None:
        self._keys = keys

    def key(self, name: str) -> str | None:
        return self._keys.get(name)


class Chat:
    """A model that always gives the same answer, or fails; ``asked`` has its prompts."""

    def __init__(self, answer: Mapping[str, Any] | str | Exception) -> None:
        self._answer = answer
        self.asked: list[Prompt] = []

    async def complete(self, endpoint: Endpoint, key: str | None, model: str, prompt: Prompt) -> LlmCompletion:
        self.asked.append(prompt)
        if isinstance(self._answer, Exception):
            raise self._answer
        text = self._answer if isinstance(self._answer, str) else json.dumps(self._answer)
        return LlmCompletion(text=text, prompt_tokens=500, completion_tokens=10)

    async def start(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def llm(chat: Chat, **keys: str) -> LlmJudge:
    return LlmJudge(keys=Secrets(**(keys or {"openai": "k"})), chat=chat)


def scores(value: float, reasoning: str = "It rests on the source.") -> Chat:
    return Chat({"score": value, "reasoning": reasoning})


def decision(made: Bench, code: str) -> Any:
    (found,) = (one for one in made.event.decisions if one.reason_code == code)
    return found


# Claims


async def test_undecided_claim_gets_the_verdict_of_the_llm() -> None:
    opinion = LlmVerdict(label=Label.SUPPORTED, confidence=0.9, reasoning="Said in other words.", passages=(0,))
    made = await bench(said(UNKNOWN), llm=ScriptedLlm({UNKNOWN: opinion}))
    summary = summary_of(await made.stream())
    (claim,) = summary["claims"]
    assert (claim["verdict"], claim["escalated"], claim["explanation"]) == ("supported", True, "Said in other words.")
    assert summary["judge"]["name"] == "scripted + scripted-llm"
    assert summary["judge"]["llm"]["calls"] == 1
    assert summary["judge"]["llm"]["prompt_tokens"] == 10


async def test_log_contains_the_llm_verdict_and_its_usage() -> None:
    opinion = LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, reasoning="It says so.", correction="Only in front.")
    made = await bench(said(UNKNOWN), policy(), llm=ScriptedLlm({UNKNOWN: opinion}))
    await made.stream()
    (row,) = made.event.claims
    assert row.label == "contradicted"
    assert row.extra["verdict"]["escalated"] is True
    assert row.extra["verdict"]["judge_score"] < 0.7
    assert disputes(row.label, row.extra, None) == ["llm"]
    assert made.event.request.extra["llm"]["calls"] == 1
    logged = repr(made.event)
    assert "It says so." not in logged
    assert "Only in front." not in logged


async def test_correction_is_requested_only_if_a_policy_corrects() -> None:
    opinion = LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, correction=TRUE)
    for action, correction in (("flag", None), ("correct", TRUE)):
        judge = ScriptedLlm({FALSE: opinion})
        made = await bench(whole(FALSE), policy(contradiction_action=action), llm=judge)
        (claim,) = (await made.unary())["grounding"]["claims"]
        assert (claim["verdict"], claim["correction"]) == ("contradicted", correction)
        assert len(judge.asked) == (1 if correction else 0)


async def test_claim_decided_by_the_cross_encoder_costs_no_call() -> None:
    judge = ScriptedLlm()
    made = await bench(said(TRUE), llm=judge)
    summary = summary_of(await made.stream())
    assert judge.asked == []
    assert "llm" not in summary["judge"]
    assert "judge_fault" not in made.event.request.extra


# Scores


async def test_low_score_decision_has_model_reasoning_tokens_and_cost() -> None:
    made = await bench(
        said(TRUE),
        policy(llm_grounding_check=True, min_citations=0),
        final_checks=[llm_scores(llm(scores(0.3, "Half of it is new.")))],
    )
    stream = await made.stream()
    assert text_of(stream) == TRUE
    summary = summary_of(stream)
    (told,) = (one for one in summary["decisions"] if one["reason_code"] == "GROUNDING_LLM_SCORE")
    assert told["reason"] == "LLM grounding score (0.30) below threshold (0.70)"
    assert told["phase"] == "mid_execution"
    assert told["metadata"]["reasoning"] == "Half of it is new."
    assert told["metadata"]["llm"]["prompt_tokens"] == 500
    assert told["metadata"]["llm"]["cost_usd"] == pytest.approx((500 * 0.15 + 10 * 0.6) / 1e6)
    assert summary["action"] == "warn"
    assert made.event.request.extra["llm"]["models"] == ["gpt-4o-mini"]


async def test_logged_score_suffices_for_a_replay_and_contains_no_text() -> None:
    made = await bench(
        said(TRUE), policy(llm_grounding_check=True), final_checks=[llm_scores(llm(scores(0.3, "Half of it is new.")))]
    )
    await made.stream()
    extra = json.dumps(made.event.request.extra)
    assert "Half of it is new." not in repr(made.event)
    log = read_log(LoggedRows(extra=extra, stream=True, blocked=False))
    assert log is not None
    (score,) = log.choices[0].inputs.llm_scores
    assert (score.request, score.score) == (ScoreRequest(model="gpt-4o-mini"), 0.3)


async def test_low_score_blocks_in_final_mode_before_anything_is_sent() -> None:
    rules = policy(llm_grounding_check=True, action_on_violation="block", stream_mode="final", min_citations=0)
    chat = scores(0.1, "Twenty-five days is what it says.")
    made = await bench(said(TRUE), rules, final_checks=[llm_scores(llm(chat))])
    stream = await made.stream()
    assert finish_of(stream) == ["content_filter"]
    assert TRUE not in text_of(stream)
    assert "Twenty-five" not in json.dumps(stream)
    assert decision(made, "GROUNDING_LLM_SCORE").action == "block"


async def test_scored_text_is_the_delivered_text() -> None:
    rules = policy(llm_grounding_check=True, unverifiable_action="strip", max_unverifiable_ratio=1.0)
    chat = scores(1.0)
    made = await bench(said(f"{TRUE} ", UNKNOWN), rules, final_checks=[llm_scores(llm(chat))])
    await made.stream()
    (prompt,) = chat.asked
    assert TRUE in prompt.user
    assert UNKNOWN not in prompt.user


async def test_policies_with_equal_criteria_and_model_share_one_request() -> None:
    chat = scores(0.9)
    two = [
        policy(llm_grounding_check=True, llm_grounding_criteria="Name the unit."),
        policy(llm_grounding_check=True, llm_grounding_criteria="Name the unit.", llm_grounding_threshold=0.95),
    ]
    made = await bench(said(TRUE), *two, final_checks=[llm_scores(llm(chat))])
    await made.stream()
    (prompt,) = chat.asked
    assert "Name the unit." in prompt.system
    assert decision(made, "GROUNDING_LLM_SCORE").action == "warn"


async def test_each_choice_has_its_own_score() -> None:
    chat = scores(0.9)
    made = await bench(whole(TRUE, TRUE), policy(llm_grounding_check=True), final_checks=[llm_scores(llm(chat))])
    await made.unary(n=2)
    assert len(chat.asked) == 2


@pytest.mark.parametrize(
    ("fields", "answer"),
    [({"documents": None}, TRUE), ({}, " "), ({"documents": []}, TRUE)],
    ids=["no documents", "no text", "an empty list"],
)
async def test_nothing_is_requested_without_text_to_score(fields: Mapping[str, Any], answer: str) -> None:
    chat = scores(0.1)
    made = await bench(said(answer), policy(llm_grounding_check=True), final_checks=[llm_scores(llm(chat))])
    await made.stream(**fields)
    assert chat.asked == []


async def test_nothing_is_requested_without_the_rule() -> None:
    chat = scores(0.1)
    made = await bench(said(TRUE), policy(), final_checks=[llm_scores(llm(chat))])
    await made.stream()
    assert chat.asked == []


@pytest.mark.parametrize("error", [JudgeError("openai returned HTTP 503"), TimeoutError(), RuntimeError("a fault")])
async def test_failed_score_warns_and_fails_no_request(error: Exception) -> None:
    rules = policy(llm_grounding_check=True, action_on_violation="block", min_citations=0)
    made = await bench(said(TRUE), rules, final_checks=[llm_scores(llm(Chat(error)))])
    stream = await made.stream()
    assert text_of(stream) == TRUE
    assert finish_of(stream) == ["stop"]
    assert decision(made, "GROUNDING_LLM_SKIPPED").action == "warn"


async def test_other_checks_run_without_a_key() -> None:
    rules = policy(llm_grounding_check=True, llm_grounding_phase="after_workflow")
    made = await bench(said(TRUE), rules, final_checks=[llm_scores(llm(scores(0.1), groq="k"))])
    await made.stream()
    found = decision(made, "GROUNDING_CITATIONS")
    assert found.metadata["warnings"] == [
        "Citations (0) below minimum (1)",
        "LLM grounding check skipped: no API key is configured for openai",
    ]


async def test_unreadable_answer_scores_a_half() -> None:
    made = await bench(
        said(TRUE), policy(llm_grounding_check=True), final_checks=[llm_scores(llm(Chat("I would rather not.")))]
    )
    await made.stream()
    assert decision(made, "GROUNDING_LLM_SCORE").metadata["score"] == 0.5


# Degradation, row by row


async def test_reply_without_documents_is_not_scored() -> None:
    judge = ScriptedLlm()
    made = await bench(said(TRUE), policy(), llm=judge)
    assert summary_of(await made.stream(documents=[]))["verdict"] == "no_sources"
    assert judge.asked == []


async def test_llm_judges_alone_if_the_cross_encoder_fails_to_load() -> None:
    broken = ScriptedJudge(start_error=JudgeUnavailableError("no such model"))
    judge = ScriptedLlm({TRUE: LlmVerdict(label=Label.SUPPORTED, confidence=0.9)})
    made = await bench(said(TRUE), judge=broken, llm=judge)
    summary = summary_of(await made.stream())
    assert summary["verdict"] == "supported"
    assert summary["judge"]["name"] == "scripted-llm"
    assert made.event.request.extra["judge_fault"] == "no such model"


async def test_nothing_is_checked_if_the_only_judge_fails_to_load() -> None:
    broken = ScriptedJudge(start_error=JudgeUnavailableError("no such model"))
    made = await bench(said(TRUE), judge=broken, llm=ScriptedLlm(ready=False))
    assert summary_of(await made.stream())["verdict"] == "not_checked"
    assert made.event.request.extra["judge_fault"] == "no such model"


async def test_llm_judges_alone_without_a_cross_encoder() -> None:
    opinion = LlmVerdict(label=Label.CONTRADICTED, confidence=0.95)
    judge = ScriptedLlm({FALSE: opinion})
    made = await bench(said(FALSE), policy(contradiction_action="block"), scorer=False, llm=judge)
    stream = await made.stream()
    assert FALSE not in text_of(stream)
    assert finish_of(stream) == ["content_filter"]


async def test_cross_encoder_judges_alone_without_a_configured_llm() -> None:
    made = await bench(said(f"{TRUE} ", UNKNOWN), llm=ScriptedLlm(ready=False))
    summary = summary_of(await made.stream())
    assert [claim["verdict"] for claim in summary["claims"]] == ["supported", "unverifiable"]
    assert summary["judge"]["name"] == "scripted"


async def test_reply_passes_unchecked_without_any_judge() -> None:
    made = await bench(said(TRUE), policy(), scorer=False, llm=ScriptedLlm(ready=False))
    stream = await made.stream()
    assert text_of(stream) == TRUE
    assert summary_of(stream)["verdict"] == "not_checked"


async def test_reply_without_any_judge_is_blocked_if_a_policy_requires_it() -> None:
    made = await bench(said(TRUE), policy(on_judge_unavailable="block"), scorer=False, llm=ScriptedLlm(ready=False))
    stream = await made.stream()
    assert text_of(stream) != TRUE
    assert finish_of(stream) == ["content_filter"]


async def test_reply_is_scored_even_if_claims_are_not_judged() -> None:
    rules = policy(llm_grounding_check=True, llm_grounding_phase="after_workflow", unjudged_action="allow")
    made = await bench(said(TRUE), rules, scorer=False, final_checks=[llm_scores(llm(scores(0.2)))])
    assert summary_of(await made.stream())["verdict"] == "not_checked"
    found = {one["reason_code"]: one for one in decision(made, "GROUNDING_NOT_CHECKED").metadata["violations"]}
    assert found["GROUNDING_NOT_CHECKED"]["action"] == "warn"
    assert found["GROUNDING_LLM_SCORE"]["metadata"]["score"] == 0.2


@pytest.mark.parametrize("text", ["", "Hello! How can I help you?"])
async def test_reply_without_a_claim_is_reported_as_no_claims(text: str) -> None:
    judge = ScriptedLlm()
    made = await bench(said(text), llm=judge)
    assert summary_of(await made.stream())["verdict"] == "no_claims"
    assert judge.asked == []


async def test_failing_llm_leaves_the_verdict_unchanged() -> None:
    made = await bench(
        said(UNKNOWN), judge=ScriptedJudge(default=NEUTRAL), llm=ScriptedLlm({UNKNOWN: JudgeError("down")})
    )
    summary = summary_of(await made.stream())
    (claim,) = summary["claims"]
    assert (claim["verdict"], claim["escalated"]) == ("unverifiable", False)
    assert summary["judge"]["llm"]["failed"] == 1


# Keys, services and prices


def keys(upstreams: Sequence[UpstreamSpec] = (), secrets: Secrets | None = None, **settings: Any) -> LlmKeys:
    return LlmKeys(Settings(_env_file=None, **settings), upstreams, secrets or Secrets())


OPENAI = UpstreamSpec(name="main", base_url="https://api.openai.com/v1", key=SecretStr("of-upstream"))
LOCAL = UpstreamSpec(name="local", base_url="http://127.0.0.1:1/v1")


def test_key_of_the_settings_precedes_secret_and_upstream_key() -> None:
    secrets = Secrets(openai="of-secret")
    assert keys([OPENAI], secrets, openai_api_key="of-settings").key("openai") == "of-settings"
    assert keys([OPENAI], secrets).key("openai") == "of-secret"
    assert keys([OPENAI]).key("openai") == "of-upstream"
    assert keys([LOCAL]).key("openai") is None


def test_key_of_an_upstream_is_found_under_its_name() -> None:
    sealed = UpstreamSpec(name="sealed", base_url="http://127.0.0.1:1/v1", secret="judge-key")
    assert keys([OPENAI]).key("main") == "of-upstream"
    assert keys([sealed], Secrets(**{"judge-key": "opened"})).key("sealed") == "opened"
    assert keys([sealed]).key("sealed") is None
    assert keys([LOCAL]).key("local") is None
    assert keys().key("nobody") is None


@pytest.mark.parametrize(
    ("upstream", "ready"),
    [
        (LOCAL, True),
        (UpstreamSpec(name="local", base_url="https://api.openai.com/v1"), False),
        (UpstreamSpec(name="local", base_url="https://x.openai.azure.com/openai/v1", api=UpstreamApi.AZURE), False),
        (UpstreamSpec(name="local", base_url="http://127.0.0.1:1/v1", secret="absent"), False),
    ],
    ids=["a server of one's own", "OpenAI's without a key", "Azure's without a key", "a secret that is not there"],
)
def test_keyless_upstream_serves_as_judge_only_if_configured_so(upstream: UpstreamSpec, ready: bool) -> None:
    settings = Settings(_env_file=None, llm_judge_model="local/m")
    assert open_llm_judge(settings, [upstream], Secrets(), lambda call: None).ready is ready


def test_unusable_price_file_stops_the_start_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('["m"]\ninput = "free"\noutput = 0\n')
    settings = Settings(_env_file=None, prices=str(file))
    with pytest.raises(SettingsError, match=r"\AGROUNDLANE_PRICES: [^\n]+input must be a number[^\n]+\Z"):
        open_llm_judge(settings, (), Secrets(), lambda call: None)


def test_llm_judges_no_claims_by_default() -> None:
    judge = open_llm_judge(Settings(_env_file=None, openai_api_key="k"), (), Secrets(), lambda call: None)
    assert (judge.ready, judge.fault) == (False, "no model is configured")
