"""Judge presets, each with a tiny model of its architecture, behind a whole gateway: a held stream gets the same
verdicts as the same reply in one piece."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.apis.stream_modes import OBSERVE
from tests.support.gateways.live_gateway import Gateway
from tests.support.judging import tiny_models

pytestmark = [pytest.mark.sentence_transformers, pytest.mark.filterwarnings("default"), pytest.mark.slow]

DOCUMENTS = [
    {"id": "office", "text": "The company moved to a new office in the north last year. The office opened in May."},
    {"id": "fees", "text": " ".join(text for text, _ in tiny_models.pairs(60, longest=30))},
]
REPLY = (
    "Hello! The company **moved** to a new office last year.\n\n- The refund costs seven euro.\n"
    "- The cat sleeps on a mat in the house of grandma.\n\n"
    "The price was never thirty euro, and the office opened in the north."
)


def with_base(make: Callable[[Path, Path], None]) -> Callable[[Path], Mapping[str, str]]:
    def made(folder: Path) -> Mapping[str, str]:
        make(folder / "model", folder / "base")
        return {"model": str(folder / "model"), "base": str(folder / "base")}

    return made


def alone(make: Callable[..., None], **options: Any) -> Callable[[Path], Mapping[str, str]]:
    def made(folder: Path) -> Mapping[str, str]:
        make(folder, **options)
        return {"model": str(folder)}

    return made


NLI = {"labels": 3, "id2label": {0: "entailment", 1: "neutral", 2: "contradiction"}}
KINDS = [
    ("minicheck-roberta-large", alone(tiny_models.roberta_classifier)),
    ("factcg-deberta-v3-large", alone(tiny_models.deberta_classifier)),
    ("alignscore-base", with_base(tiny_models.alignscore)),
    ("nli-modernbert-large", alone(tiny_models.modernbert_classifier, **NLI)),
    ("minicheck-flan-t5-large", alone(tiny_models.flan_t5)),
    ("hhem-2.1-open", with_base(tiny_models.hhem)),
    ("lettucedetect-base", alone(tiny_models.modernbert_token_classifier)),
]


@pytest.fixture(autouse=True)
def needs_torch() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


@pytest.fixture
def open_gateway(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    opened: list[Gateway] = []

    def open_(name: str, options: Mapping[str, str]) -> Gateway:
        query = "&".join(f"{key}={value}" for key, value in {"device": "cpu", **options}.items())
        settings = {"judge": f"preset:{name}?{query}", "judge_timeout_ms": 60_000, "judge_threads": 1}
        opened.append(Gateway(tmp_path, real_judge=True, **settings).start())
        return opened[-1]

    yield open_
    for gateway in opened:
        gateway.close()


def ask(gateway: Gateway, *, stream: bool) -> tuple[str, dict[str, Any], str]:
    """The delivered text, the ``grounding`` object and the request's id."""
    agent = gateway.agent(grounding={**OBSERVE, "stream_mode": "hold"})
    gateway.upstream.script(answer(REPLY, stream=stream))
    body = {
        "model": "test-model-1",
        "messages": [{"role": "user", "content": "Tell me about the company."}],
        "stream": stream,
        "documents": DOCUMENTS,
        "grounding": {"agent": agent},
    }
    with gateway.call(body) as call:
        if stream:
            reading = call.reading()
            return reading.text(), reading.grounding, call.request_id
        whole = call.json()
        return whole["choices"][0]["message"]["content"], whole["grounding"], call.request_id


def without_scores(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_scores(each) for name, each in value.items() if name not in ("score", "confidence")}
    return [without_scores(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "make"), KINDS, ids=[name for name, _ in KINDS])
def test_held_stream_gets_the_verdicts_of_the_whole_reply(
    tmp_path: Path, open_gateway: Callable[..., Gateway], name: str, make: Callable[[Path], Mapping[str, str]]
) -> None:
    gateway = open_gateway(name, make(tmp_path / "judge"))
    text, streamed, request_id = ask(gateway, stream=True)
    whole_text, whole, _ = ask(gateway, stream=False)
    assert text == whole_text == REPLY
    assert whole["judge"]["name"].startswith(f"preset:{name}(")
    assert whole["total_claims"] == 4
    assert list(map(without_scores, streamed["claims"])) == list(map(without_scores, whole["claims"]))
    assert [claim["score"] for claim in streamed["claims"]] == [
        # Sums in single precision depend on what else is in the batch.
        pytest.approx(claim["score"], abs=1e-3)
        for claim in whole["claims"]
    ]
    assert all("reason" not in claim and claim["best_source"] for claim in whole["claims"])
    marked = [(claim, span) for claim in whole["claims"] for span in claim.get("spans", ())]
    assert bool(marked) == name.startswith("lettucedetect")
    for claim, span in marked:
        assert claim["span"]["start"] <= span["start"] < span["end"] <= claim["span"]["end"]
        assert claim["verdict"] != "supported"
        assert span["score"] > 0.5
    rows = gateway.trace(request_id).claims
    assert sum(len(row["extra"].get("unsupported", ())) for row in rows if row["extra"]) == len(marked)
