import asyncio
import logging
import math
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from judges.cross_encoder.remote import json_client as client
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError
from judges.types import Probabilities
from tests.support.judging.scorer_calls import DENIED, EVIDENCE, OTHER, PAIRS, SAID, THREE_WAY, opened, rounded
from tests.support.judging.stub_models import Tei, Vllm

pytestmark = pytest.mark.anyio

TEMPLATE = {"template": "{evidence}[SEP]{claim}"}


# Each server


@pytest.mark.parametrize("url", ["http://judge", "http://judge/", "http://judge/predict", "tei+http://judge"])
async def test_text_embeddings_inference_labels_are_read_by_name(url: str) -> None:
    server = Tei()
    async with opened(server, url) as scorer:
        assert rounded(await scorer.score(PAIRS)) == THREE_WAY
        assert scorer.name == "http:org/nli@fca14538"
        assert scorer.max_tokens == 508
        assert scorer.languages is None


async def test_label_order_does_not_change_the_verdicts() -> None:
    for id2label in (
        {"0": "ENTAILMENT", "1": "NEUTRAL", "2": "CONTRADICTION"},
        {"2": "entailment", "0": "neutral", "1": "contradiction"},
    ):
        lower = Tei(id2label={place: name.lower() for place, name in id2label.items()})
        async with opened(lower) as scorer:
            assert rounded(await scorer.score(PAIRS)) == THREE_WAY


async def test_single_label_is_the_log_odds_of_entailment() -> None:
    async with opened(Tei(id2label={"0": "LABEL_0"})) as scorer:
        assert rounded(await scorer.score(PAIRS)) == [(0.8, 0.2, 0.0), (0.2, 0.8, 0.0), (0.2, 0.8, 0.0)]


async def test_vllm_classify_learns_its_label_order_from_answers() -> None:
    for names in (("entailment", "neutral", "contradiction"), ("contradiction", "neutral", "entailment")):
        server = Vllm(names=names)
        async with opened(server, options=TEMPLATE) as scorer:
            assert rounded(await scorer.score(PAIRS)) == THREE_WAY
            assert server.asked("/classify")[-1]["input"][0] == f"{EVIDENCE}[SEP]{SAID}"
            assert server.asked("/classify")[-1]["truncate_prompt_tokens"] == -1


async def test_unnamed_vllm_labels_are_requested_and_can_be_configured() -> None:
    server = Vllm(names=("contradiction", "neutral", "entailment"), tells_labels=False)
    with pytest.raises(JudgeUnavailableError, match=r"order of 3 labels .* \?labels="):
        async with opened(server, options=TEMPLATE):
            pass
    given = {**TEMPLATE, "labels": "contradiction,neutral,entailment"}
    async with opened(server, "http://judge/classify", options=given) as scorer:
        assert rounded(await scorer.score(PAIRS)) == THREE_WAY


async def test_labels_in_the_wrong_order_are_detected() -> None:
    given = {**TEMPLATE, "labels": "entailment,neutral,contradiction"}
    async with opened(Vllm(names=("contradiction", "neutral", "entailment")), options=given) as scorer:
        with pytest.raises(JudgeError, match="in a different order from entailment, neutral, contradiction"):
            await scorer.score(PAIRS)


async def test_vllm_classify_without_a_template_is_an_error() -> None:
    with pytest.raises(JudgeUnavailableError, match=r"\?template=\{evidence\}\[SEP\]\{claim\}"):
        async with opened(Vllm()):
            pass


async def test_template_placeholders_in_a_text_are_kept() -> None:
    server = Vllm()
    async with opened(server, options=TEMPLATE) as scorer:
        await scorer.score([("the {claim} form", "a {evidence} form")])
        assert server.asked("/classify")[-1]["input"] == ["the {claim} form[SEP]a {evidence} form"]


@pytest.mark.parametrize(("logits", "high"), [(False, 0.9), (True, 0.9975)])
async def test_vllm_score_is_read_with_or_without_a_sigmoid(logits: bool, high: float) -> None:
    server = Vllm(names=("LABEL_0",), logits=logits, max_model_len=8192)
    async with opened(server, "http://judge/v1") as scorer:
        found = rounded(await scorer.score(PAIRS))
        assert [one[0] for one in found] == pytest.approx([high, 1 - high, 1 - high], abs=1e-4)
        assert all(one[2] == 0.0 for one in found)
        assert scorer.max_tokens == 8188
        assert server.asked("/score")[-1]["text_1"] == [EVIDENCE] * 3
        assert server.asked("/score")[-1]["text_2"] == [SAID, DENIED, OTHER]


async def test_embedding_model_is_rejected_as_a_judge() -> None:
    with pytest.raises(JudgeUnavailableError, match="is not a classifier"):
        async with opened(Vllm(names=())):
            pass


async def test_vllm_model_can_be_named() -> None:
    async with opened(Vllm(names=("LABEL_0",)), "vllm+http://judge/score", options={"model": "org/nli"}) as scorer:
        assert scorer.name == "http:org/nli"
    with pytest.raises(JudgeUnavailableError, match=r"has \['org/nli'\], not 'other'"):
        async with opened(Vllm(), options={"model": "other"}):
            pass


# Limits


async def test_large_batches_are_split_and_answers_keep_their_order() -> None:
    server = Tei(max_client_batch_size=4)
    async with opened(server) as scorer:
        found = await scorer.score(PAIRS * 5)
        assert rounded(found) == THREE_WAY * 5
        assert [len(body["inputs"]) for body in server.asked("/predict")] == [4, 4, 4, 3]
        assert await scorer.score([]) == []


async def test_concurrent_requests_are_limited() -> None:
    class Slow(Tei):
        running = most = 0

        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(5):
                await asyncio.sleep(0)
            self.running -= 1
            return await super().answer(method, path, body)

    server = Slow(max_client_batch_size=1)
    async with opened(server, concurrency=3) as scorer:
        await asyncio.gather(*(scorer.score(PAIRS) for _ in range(5)))
    assert server.most == 3


async def test_key_is_sent_and_never_shown() -> None:
    async with opened(Tei(key="s3cret"), api_key="s3cret") as scorer:
        assert len(await scorer.score(PAIRS)) == 3
    with pytest.raises(JudgeUnavailableError, match="API key rejected") as refused:
        async with opened(Tei(key="s3cret"), api_key="wr0ng"):
            pass
    assert "wr0ng" not in str(refused.value)


async def test_tokens_are_counted_by_the_given_tokenizer(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        async with opened(Tei(), options={"tokenizer": str(path)}) as scorer:
            assert scorer.count_tokens("a b c a b") == 5
    with pytest.raises(JudgeUnavailableError, match="cannot read the tokenizer"):
        async with opened(Tei(), options={"tokenizer": str(tmp_path / "none.json")}):
            pass


@pytest.mark.parametrize(
    ("text", "word_pieces"),
    [
        ("A cat is sleeping.", 5),
        ("Der Tarif stieg um 3,5 % auf 1.000 €.", 16),
        ("Die Tageshöchstdosis liegt bei 2.400 mg.", 15),
        ("日本語のテキスト", 8),
        ("", 0),
    ],
)
async def test_token_estimate_is_no_lower_than_the_count_of_bert(text: str, word_pieces: int) -> None:
    async with opened(Tei()) as scorer:
        assert word_pieces <= scorer.count_tokens(text) <= word_pieces + 2


async def test_pair_that_the_server_truncates_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(Tei(max_input_length=32)) as scorer:
        with caplog.at_level(logging.WARNING):
            await scorer.score([(EVIDENCE * 10, SAID), (EVIDENCE, SAID)])
        assert scorer.pairs_cut == 1
    assert "1 of 2 pairs may exceed 28 tokens" in caplog.text


# Failures


class Scripted(Tei):
    """A judge that answers ``/predict`` with the given responses or errors, in order."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        super().__init__()
        self.answers = list(answers)

    async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
        if path != "/predict" or not self.answers:
            return await super().answer(method, path, body)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def score_with(*answers: httpx.Response | Exception) -> list[Probabilities]:
    async with opened(Scripted(*answers)) as scorer:
        return list(await scorer.score(PAIRS))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is retried after a pause."""
    monkeypatch.setattr(client, "_FIRST_BACKOFF_S", math.inf)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (httpx.Response(429), JudgeOverloadedError, "the server is overloaded"),
        (httpx.Response(503), JudgeUnreachableError, "not ready"),
        (httpx.Response(408), JudgeUnreachableError, "not ready"),
        (httpx.Response(403), JudgeUnavailableError, "API key rejected"),
        (httpx.Response(424, json={"error": "the secret text"}), JudgeError, "returned 424"),
        (httpx.Response(307, headers={"location": "http://elsewhere"}), JudgeError, "returned 307"),
        (httpx.Response(200, content=b"<html>"), JudgeError, "response is not JSON"),
        (httpx.Response(200, json={"error": "x"}), JudgeError, "expected 3 results"),
        (httpx.Response(200, json=[[], []]), JudgeError, "expected 3 results"),
        (httpx.Response(200, json=[1, 2, 3]), JudgeError, "not a list of objects"),
        (
            httpx.Response(200, json=[[{"label": "joy", "score": 1.0}]] * 3),
            JudgeError,
            "unexpected labels in the response",
        ),
        (httpx.Response(200, content=b"[" + b" " * (9 << 20)), JudgeError, "longer than"),
        (httpx.ReadTimeout("slow"), JudgeUnreachableError, "did not respond in time"),
        (httpx.ConnectError("refused"), JudgeUnreachableError, "cannot connect"),
        (httpx.UnsupportedProtocol("odd"), JudgeError, "UnsupportedProtocol"),
    ],
)
@pytest.mark.usefixtures("impatient")
async def test_errors_are_judge_errors(
    answer: httpx.Response | Exception, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        await score_with(answer)
    assert "secret text" not in str(raised.value)


@pytest.mark.parametrize("value", [None, "1", True, float("nan")])
async def test_non_numeric_score_is_rejected(value: Any) -> None:
    row = [{"label": name, "score": 0.0} for name in ("contradiction", "entailment")]
    body = httpx.Response(200, text=str([[*row, {"label": "neutral", "score": value}]] * 3).replace("'", '"'))
    with pytest.raises(JudgeError):
        await score_with(body)


@pytest.mark.usefixtures("impatient")
async def test_broken_connection_is_retried_once_at_once() -> None:
    for broken in (httpx.ReadError("reset"), httpx.WriteError("reset"), httpx.RemoteProtocolError("gone")):
        assert rounded(await score_with(broken)) == THREE_WAY
        with pytest.raises(JudgeUnreachableError, match="lost the connection twice"):
            await score_with(broken, broken)


PASSING = (httpx.Response(500), httpx.Response(503), httpx.ConnectError("refused"), *[httpx.ReadError("reset")] * 2)


async def test_temporary_errors_are_retried_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_FIRST_BACKOFF_S", 0.0)
    assert rounded(await score_with(*PASSING)) == THREE_WAY


async def test_unavailable_judge_delays_only_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(Tei):
        left: float = math.inf

        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            if path == "/predict" and self.left > 0:
                self.left -= 1
                return httpx.Response(503)
            return await super().answer(method, path, body)

    monkeypatch.setattr(client, "_FIRST_BACKOFF_S", 0.0)
    server = Away()
    async with opened(server, timeout_s=0.2) as scorer:
        for tries in (range(1, 10**9), range(1, 2)):
            before = len(server.sent)
            with pytest.raises(JudgeUnreachableError):
                await scorer.score(PAIRS)
            assert len(server.sent) - before in tries
    async with opened(server) as scorer:
        for times in (0, 1, 3):
            server.left = times
            assert rounded(await scorer.score(PAIRS)) == THREE_WAY, "it is back, so it may be waited for again"


async def test_number_of_concurrent_requests_can_be_configured() -> None:
    assert HttpScorer("http://judge", options={"concurrency": "32"}).concurrency == 32


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"index": 0, "label": "entailment", "probs": [0.9, 0.9, 0.1]}], "do not sum to 1"),
        ([{"index": 0, "label": "entailment", "probs": []}], "has no probabilities"),
        ([{"index": 0, "label": "entailment"}], "has no probabilities"),
        ([{"label": "entailment", "probs": [1.0, 0.0, 0.0]}], "not a number"),
        ([{"index": 0, "label": "entailment", "probs": [1.9, -0.5, -0.4]}], "outside 0 to 1"),
        ([{"index": 0, "label": "entailment", "probs": [1.01, -0.01, 0.0]}], "outside 0 to 1"),
        ([{"index": 0, "label": "entailment", "probs": [0.5, 0.2, 0.1]}], "do not sum to 1"),
        ([{"index": 0, "label": "entailment", "probs": [1, 0, 10**400]}], "not a number"),
        ([{"index": 7, "label": "entailment", "probs": [1.0, 0.0, 0.0]}], "indexes 0 to 0"),
        ([{"index": True, "label": "entailment", "probs": [1.0, 0.0, 0.0]}], "not a number"),
        ([{"index": 0.5, "label": "entailment", "probs": [1.0, 0.0, 0.0]}], "indexes 0 to 0"),
    ],
)
async def test_malformed_vllm_answer_is_rejected(rows: list[dict[str, Any]], message: str) -> None:
    class Odd(Vllm):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            if path == "/classify" and len(body["input"]) == 1 and "[SEP]" in body["input"][0]:
                return httpx.Response(200, json={"data": rows})
            return await super().answer(method, path, body)

    async with opened(Odd(), options=TEMPLATE) as scorer:
        with pytest.raises(JudgeError, match=message):
            await scorer.score(PAIRS[:1])


@pytest.mark.parametrize("path", ["/classify", "/score"])
@pytest.mark.parametrize("indexes", [(7, 7, 7), (0, 0, 1), (1, 2, 3), (0, 1, -1)])
async def test_each_pair_must_have_its_own_result(path: str, indexes: tuple[int, ...]) -> None:
    class Odd(Vllm):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            response = await super().answer(method, path, body)
            rows = response.json().get("data", []) if response.is_success else []
            if len(rows) != len(indexes):
                return response
            return httpx.Response(200, json={"data": [{**row, "index": indexes[n]} for n, row in enumerate(rows)]})

    options, names = (TEMPLATE, ("entailment", "neutral", "contradiction")) if path == "/classify" else ({}, ("L",))
    async with opened(Odd(names=names), f"http://judge{path}", options=options) as scorer:
        with pytest.raises(JudgeError, match="do not have the indexes 0 to 2"):
            await scorer.score(PAIRS)


async def test_results_in_another_order_are_sorted_by_index() -> None:
    class Shuffled(Vllm):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            response = await super().answer(method, path, body)
            return (
                httpx.Response(200, json={"data": response.json()["data"][::-1]}) if path == "/classify" else response
            )

    async with opened(Shuffled(), options=TEMPLATE) as scorer:
        assert rounded(await scorer.score(PAIRS)) == THREE_WAY


@pytest.mark.parametrize(
    "extra", [{"label": "entailment", "score": 9.0}, {"label": ["entailment"], "score": 9.0}, {"score": 9.0}]
)
async def test_label_given_twice_is_rejected(extra: dict[str, Any]) -> None:
    row = [{"label": name, "score": 0.0} for name in ("entailment", "neutral", "contradiction")]
    with pytest.raises(JudgeError, match="unexpected labels"):
        await score_with(httpx.Response(200, json=[[*row, extra]] * 3))


@pytest.mark.parametrize("body", [b"[" * 200_000, b'[{"label": ' + b"9" * 5_000 + b"}]"])
async def test_response_that_cannot_be_decoded_is_an_error(body: bytes) -> None:
    with pytest.raises(JudgeError, match="response is not JSON"):
        await score_with(httpx.Response(200, content=body))


async def test_single_class_with_a_template_must_be_a_probability() -> None:
    """A model with one class may return logits, which ``/classify`` can't be asked to convert."""

    class Logits(Vllm):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            if path != "/classify":
                return await super().answer(method, path, body)
            rows = [{"index": n, "label": "entailment", "probs": [2.5]} for n, _ in enumerate(body["input"])]
            return httpx.Response(200, json={"data": rows})

    options = {**TEMPLATE, "labels": "entailment"}
    async with opened(Logits(names=("entailment",)), "http://judge/classify", options=options) as scorer:
        with pytest.raises(JudgeError, match="outside 0 to 1"):
            await scorer.score(PAIRS)


async def test_score_out_of_range_is_rejected() -> None:
    class Odd(Vllm):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            if path == "/score" and len(body["text_1"]) == 1:
                return httpx.Response(200, json={"data": [{"index": 0, "score": [1.5]}]})
            return await super().answer(method, path, body)

    async with opened(Odd(names=("LABEL_0",))) as scorer:
        with pytest.raises(JudgeError, match="outside 0 to 1"):
            await scorer.score(PAIRS[:1])


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ([], "expected a JSON object"),
        ({"model_id": "m", "model_type": {"embedding": {"pooling": "cls"}}}, "is not a classifier"),
        (
            {"model_id": "m", "model_type": {"classifier": {"id2label": {"0": "joy", "1": "anger"}}}},
            "expected one logit",
        ),
        (
            {"model_id": "m", "model_type": {"classifier": {"id2label": {"0": "entailment", "1": "x", "2": "x"}}}},
            "the same name",
        ),
        ({"model_id": "m", "model_type": {"reranker": {"id2label": {"0": "x"}}}}, "has no max_input_length"),
        ({"protocol": "groundlane-judge/1", "model": "m"}, "has no max_tokens"),
    ],
)
async def test_unusable_server_is_rejected_at_startup(info: Any, message: str) -> None:
    class Odd(Tei):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            return httpx.Response(200, json=info)

    with pytest.raises(JudgeUnavailableError, match=f"judge at http://judge: .*{message}"):
        async with opened(Odd()):
            pass


async def test_configured_protocol_is_not_detected() -> None:
    with pytest.raises(JudgeUnavailableError, match="/info: the server returned 404"):
        async with opened(Vllm(), "tei+http://judge"):
            pass


async def test_server_unavailable_at_startup_can_be_asked_again() -> None:
    class Later(Tei):
        ready = False

        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            return await super().answer(method, path, body) if self.ready else httpx.Response(503)

    server = Later()
    scorer = HttpScorer("http://judge:8080", transport=server.transport)
    assert scorer.name == "http:judge:8080"
    with pytest.raises(JudgeUnavailableError, match="not connected"):
        _ = scorer.max_tokens
    with pytest.raises(JudgeUnreachableError, match="not ready"):
        await scorer.start()
    server.ready = True
    await scorer.start()
    await scorer.start()
    assert rounded(await scorer.score(PAIRS)) == THREE_WAY
    await scorer.aclose()
    with pytest.raises(JudgeUnavailableError, match="not connected"):
        await scorer.score(PAIRS)
    with pytest.raises(JudgeUnavailableError, match="closed"):
        await scorer.start()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_temporary_errors_at_startup_are_reported_as_such(status: int) -> None:
    class Busy(Tei):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            return httpx.Response(status)

    with pytest.raises(JudgeUnreachableError, match="judge at http://judge: /info"):
        async with opened(Busy()):
            pass


async def test_unstarted_scorer_can_be_closed() -> None:
    scorer = HttpScorer("http://judge:8080")
    await scorer.aclose()
    with pytest.raises(JudgeUnavailableError, match="closed"):
        await scorer.start()


async def test_idle_connection_closed_by_the_server_is_replaced() -> None:
    requests: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        requests.append(head.splitlines()[0])
        length = int(next((line[16:] for line in head.splitlines() if line.lower().startswith("content-length: ")), 0))
        await reader.readexactly(length)
        if len(requests) != 2:  # the second connection closes without an answer
            path = head.split()[1]
            answer = await Tei().answer(
                head.split()[0], path, {"inputs": [list(PAIRS[0])], "raw_scores": True, "truncate": True}
            )
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer.content)
                + answer.content
            )
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        scorer = HttpScorer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=10.0)
        await scorer.start()
        assert rounded(await scorer.score(PAIRS[:1])) == THREE_WAY[:1]
        await scorer.aclose()
    assert requests == ["GET /info HTTP/1.1", "POST /predict HTTP/1.1", "POST /predict HTTP/1.1"]


# The URL


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("judge", {}, "expected a URL"),
        ("ftp://judge", {}, "expected a URL"),
        ("http://", {}, "expected a URL"),
        ("triton+http://judge", {}, "expected one of tei, vllm, groundlane"),
        ("http://user:pass@judge", {}, "GROUNDLANE_JUDGE_API_KEY"),
        ("http://judge#x", {}, "without query or fragment"),
        ("http://judge", {"template": "{evidence}"}, "once each"),
        ("http://judge", {"template": "{claim} {claim} {evidence}"}, "once each"),
        ("http://judge", {"max_tokens": "many"}, "max_tokens: expected an integer"),
        ("http://judge", {"max_tokens": "3"}, "max_tokens: expected an integer"),
        ("http://judge", {"concurrency": "0"}, "concurrency: expected an integer from 1"),
    ],
)
def test_invalid_url_or_option_is_rejected(url: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        HttpScorer(url, options=options)
    assert "pass@" not in str(raised.value)


async def test_token_limit_can_be_configured() -> None:
    server = Vllm(names=("LABEL_0",), max_model_len=None)
    async with opened(server, options={"max_tokens": "300"}) as scorer:
        assert scorer.max_tokens == 296
    async with opened(server) as scorer:
        assert scorer.max_tokens == 508
