"""Scores equal those of a computation written from each model's card with plain transformers."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from judges.protocols import PairScorer
from judges.types import Probabilities
from tests.support.judging import tiny_models

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.anyio, pytest.mark.sentence_transformers, pytest.mark.filterwarnings("default")]

OpenPreset = Callable[..., Awaitable[PairScorer]]
Pairs = Sequence[tuple[str, str]]
Triple = tuple[float, float, float]
"""P(entailed), P(neutral), P(contradicted)."""

TOLERANCE = 1e-4


def two_classes(supported: float) -> Triple:
    return supported, 1.0 - supported, 0.0


async def agree(scorer: PairScorer, pairs: Pairs, expected: Sequence[Triple]) -> None:
    """The scores of ``pairs`` in one call, and in a separate call for each, are ``expected``, and differ."""
    alone = [(await scorer.score([pair]))[0] for pair in pairs]
    for found in (await scorer.score(pairs), alone):
        assert values(found) == [pytest.approx(row, abs=TOLERANCE) for row in expected]
    assert max(row[0] for row in expected) - min(row[0] for row in expected) > 0.1


def values(scores: Sequence[Probabilities]) -> list[Triple]:
    return [(one.entailed, one.neutral, one.contradicted) for one in scores]


@torch.no_grad()
def minicheck(model: Any, tokenizer: Any, pairs: Pairs, limit: int) -> list[Triple]:
    """As in MiniCheck's repository: the two texts with the end-of-sequence token between them, class 1."""
    rows = []
    for document, claim in pairs:
        text = tokenizer.eos_token.join([document, claim])
        inputs = tokenizer([text], max_length=limit, truncation=True, padding=True, return_tensors="pt")
        rows.append(two_classes(torch.softmax(model(**inputs).logits, dim=1)[0, 1].item()))
    return rows


@pytest.mark.parametrize(
    ("name", "make", "limit", "longest"),
    [
        ("minicheck-roberta-large", tiny_models.roberta_classifier, 512, 85),
        ("minicheck-deberta-v3-large", tiny_models.deberta_classifier, 2048, 200),
    ],
)
async def test_minicheck_encoders(
    tmp_path: Path, open_preset: OpenPreset, name: str, make: Callable[[Path], None], limit: int, longest: int
) -> None:
    make(tmp_path)
    pairs = tiny_models.pairs(longest=longest)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    await agree(await open_preset(name, tmp_path), pairs, minicheck(model, tokenizer, pairs, limit))


async def test_factcg(tmp_path: Path, open_preset: OpenPreset) -> None:
    tiny_models.deberta_classifier(tmp_path)
    pairs = tiny_models.pairs(longest=200)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = []
    for document, claim in pairs:
        text = (
            document
            + '\n\nChoose your answer: based on the paragraph above can we conclude that "'
            + claim
            + '"?\n\nOPTIONS:\n- Yes\n- No\nI think the answer is '
        )
        with torch.no_grad():
            logits = model(**tokenizer([text], max_length=2048, truncation=True, return_tensors="pt")).logits
        expected.append(two_classes(torch.softmax(logits, dim=-1)[0, 1].item()))
    await agree(await open_preset("factcg-deberta-v3-large", tmp_path), pairs, expected)


@pytest.mark.parametrize("size", ["base", "large"])
async def test_alignscore(tmp_path: Path, open_preset: OpenPreset, size: str) -> None:
    folder, base = tmp_path / "model", tmp_path / "base"
    tiny_models.alignscore(folder, base, file=f"AlignScore-{size}.ckpt")
    pairs = tiny_models.pairs(longest=85)
    with torch.serialization.safe_globals([(dict, "pytorch_lightning.utilities.parsing.AttributeDict")]):
        state = torch.load(folder / f"AlignScore-{size}.ckpt")["state_dict"]
    encoder = transformers.RobertaModel(transformers.AutoConfig.from_pretrained(base)).eval()
    encoder.load_state_dict({k.removeprefix("base_model."): v for k, v in state.items() if k.startswith("base_model.")})
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    expected = []
    for context, claim in pairs:
        inputs = tokenizer(context, claim, truncation="only_first", max_length=512, return_tensors="pt")
        with torch.no_grad():
            pooled = encoder(**inputs).pooler_output
        scores = torch.softmax(pooled @ state["tri_layer.weight"].T + state["tri_layer.bias"], dim=-1)[0].tolist()
        expected.append((scores[0], scores[1], scores[2]))
    await agree(await open_preset(f"alignscore-{size}", folder, base=str(base)), pairs, expected)


ORDER = {0: "contradiction", 1: "entailment", 2: "neutral"}


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("nli-deberta-v3-large", tiny_models.deberta_classifier),
        ("nli-mdeberta-v3-base", tiny_models.deberta_classifier),
        ("nli-modernbert-large", tiny_models.modernbert_classifier),
    ],
)
async def test_natural_language_inference_by_the_labels_of_the_model(
    tmp_path: Path, open_preset: OpenPreset, name: str, make: Callable[..., None]
) -> None:
    make(tmp_path, labels=3, id2label=ORDER)
    pairs = tiny_models.pairs(longest=85)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = []
    for premise, hypothesis in pairs:
        with torch.no_grad():
            logits = model(**tokenizer(premise, hypothesis, truncation=True, return_tensors="pt")).logits
        contradiction, entailment, neutral = torch.softmax(logits, dim=-1)[0].tolist()
        expected.append((entailment, neutral, contradiction))
    await agree(await open_preset(name, tmp_path), pairs, expected)


async def test_minicheck_flan_t5(tmp_path: Path, open_preset: OpenPreset) -> None:
    tiny_models.flan_t5(tmp_path)
    pairs = tiny_models.pairs(longest=200)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = []
    for document, claim in pairs:
        text = "predict: " + tokenizer.eos_token.join([document, claim])
        inputs = tokenizer([text], max_length=2048, truncation=True, return_tensors="pt")
        with torch.no_grad():
            first = model(**inputs, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)).logits.squeeze(1)
        expected.append(two_classes(torch.softmax(first[:, [3, 209]], dim=-1)[0, 1].item()))
    await agree(await open_preset("minicheck-flan-t5-large", tmp_path), pairs, expected)


async def test_hhem(tmp_path: Path, open_preset: OpenPreset) -> None:
    folder, base = tmp_path / "model", tmp_path / "base"
    tiny_models.hhem(folder, base)
    pairs = tiny_models.pairs(longest=200)
    model = hhem_model(folder, base)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    expected = []
    for premise, hypothesis in pairs:
        text = (
            "<pad> Determine if the hypothesis is true given the premise?\n\n"
            f"Premise: {premise}\n\nHypothesis: {hypothesis}"
        )
        with torch.no_grad():
            logits = model(**tokenizer([text], return_tensors="pt", padding=True)).logits
        expected.append(two_classes(torch.softmax(logits[:, 0, :], dim=-1)[0, 1].item()))
    await agree(await open_preset("hhem-2.1-open", folder, base=str(base)), pairs, expected)


def hhem_model(folder: Path, base: Path) -> Any:
    """The class in the model's repository wraps a T5 token classifier in the attribute ``t5``."""
    from safetensors.torch import load_file

    config = transformers.AutoConfig.from_pretrained(base)
    config.num_labels = 2
    wrapped = torch.nn.Module()
    wrapped.t5 = transformers.T5ForTokenClassification(config)
    assert not wrapped.load_state_dict(load_file(folder / "model.safetensors"), strict=False).unexpected_keys
    return wrapped.t5.eval()


@pytest.mark.parametrize(
    ("name", "make", "before", "after"),
    [
        (
            "lettucedetect-base",
            tiny_models.modernbert_token_classifier,
            "Summarize the following text:\npassage 1: ",
            "\noutput:",
        ),
        ("lettucedetect-v2-base", tiny_models.mmbert_token_classifier, "", ""),
        (
            "lettucedetect-610m-de",
            tiny_models.eurobert_token_classifier,
            "Fasse den folgenden Text zusammen:\nPassage 1: ",
            "\nAusgabe:\n",
        ),
    ],
)
async def test_lettucedetect(
    tmp_path: Path, open_preset: OpenPreset, name: str, make: Callable[[Path], None], before: str, after: str
) -> None:
    make(tmp_path)
    pairs = tiny_models.pairs(longest=90)
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    worst, spans = [], []
    for context, answer in pairs:
        prompt = before + context + after
        encoded = tokenizer(
            prompt, answer, truncation="only_first", max_length=4096, return_offsets_mapping=True, return_tensors="pt"
        )
        offsets = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            scores = torch.softmax(model(encoded.input_ids, encoded.attention_mask).logits, dim=-1)[0, :, 1].tolist()
        # The answer's tokens are the last ones, before the separator.
        count = len(tokenizer(answer, add_special_tokens=False)["input_ids"])
        first = len(scores) - count - 1
        worst.append(two_classes(1.0 - max(scores[first:-1])))
        spans.append(expected_spans(answer, list(zip(offsets[first:-1], scores[first:-1], strict=True))))
    scorer = await open_preset(name, tmp_path)
    await agree(scorer, pairs, worst)
    found = [[(span.start, span.end, span.score) for span in one.spans] for one in await scorer.score(pairs)]
    assert [[(start, end, pytest.approx(p, abs=TOLERANCE)) for start, end, p in row] for row in spans] == found
    assert any(spans)
    assert any(
        0 < end - start < len(answer) for row, (_, answer) in zip(spans, pairs, strict=True) for start, end, _ in row
    )


def expected_spans(answer: str, tokens: list[tuple[list[int], float]]) -> list[tuple[int, int, float]]:
    """Neighbouring characters in tokens with a probability above 0.5, without whitespace at their ends."""
    marked = [0.0] * len(answer)
    for (start, end), score in tokens:
        for place in range(start, end):
            marked[place] = score if score > 0.5 else 0.0
    spans: list[tuple[int, int, float]] = []
    place = 0
    while place < len(answer):
        end = place
        while end < len(answer) and marked[end]:
            end += 1
        if text := answer[place:end].strip():
            start = answer.index(text, place)
            spans.append((start, start + len(text), max(marked[place:end])))
        place = max(end, place + 1)
    return spans
