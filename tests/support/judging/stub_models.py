"""Small servers that implement the protocols of Text Embeddings Inference, vLLM and Groundlane as strictly as the
originals."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

THREE = {"0": "contradiction", "1": "entailment", "2": "neutral"}


def opinion(evidence: str, claim: str) -> str:
    """Return the server's verdict: a claim with "no" is contradicted, a claim that repeats the evidence is entailed,
    and any other is neutral."""
    words = claim.lower().replace(".", "").split()
    if {"no", "never", "usual"} & set(words):
        return "contradiction"
    known = evidence.lower().replace(".", "").split()
    return "entailment" if all(word in known for word in words) else "neutral"


def probabilities(evidence: str, claim: str, names: Sequence[str]) -> list[float]:
    """Return 0.8 for the server's verdict and equal shares of the rest for the others."""
    held = opinion(evidence, claim)
    return [0.8 if name == held else 0.2 / (len(names) - 1) for name in names]


def refusal(status: int, message: str) -> httpx.Response:
    return httpx.Response(status, json={"error": message, "error_type": "Validation"})


@dataclass
class Standin:
    """Answers requests in process. ``sent`` has the requests, and ``key`` is the bearer token that the server
    requires."""

    key: str | None = None
    prefix: str = ""
    sent: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._handle)

    def asked(self, path: str) -> list[Any]:
        """Return the bodies sent to ``path``."""
        return [body for where, body in self.sent if where == path]

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        path = request.url.path.removeprefix(self.prefix)
        self.sent.append((path, body))
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return httpx.Response(401)
        return await self.answer(request.method, path, body)

    async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
        raise NotImplementedError


@dataclass
class Tei(Standin):
    """Serves ``/info`` and ``/predict``. A model with one label counts as a re-ranker."""

    id2label: Mapping[str, str] = field(default_factory=lambda: dict(THREE))
    max_input_length: int = 512
    max_client_batch_size: int = 4

    async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
        match method, path:
            case "GET", "/info":
                kind = "classifier" if len(self.id2label) > 1 else "reranker"
                label2id = {name: int(place) for place, name in self.id2label.items()}
                return httpx.Response(
                    200,
                    json={
                        "model_id": "org/nli",
                        "model_sha": "fca14538aa9956a46526bd1d0d11d69e19b5a101",
                        "model_dtype": "float16",
                        "model_type": {kind: {"id2label": self.id2label, "label2id": label2id}},
                        "max_concurrent_requests": 512,
                        "max_input_length": self.max_input_length,
                        "max_batch_tokens": 16384,
                        "max_client_batch_size": self.max_client_batch_size,
                        "auto_truncate": False,
                        "version": "1.8.0",
                    },
                )
            case "POST", "/predict":
                return self._predict(body)
        return httpx.Response(404)

    def _predict(self, body: Mapping[str, Any]) -> httpx.Response:
        inputs = body["inputs"]
        assert all(isinstance(pair, list) and len(pair) == 2 for pair in inputs)
        if len(inputs) > self.max_client_batch_size:
            return refusal(413, "batch size error")
        assert body["raw_scores"] is True
        assert body["truncate"] is True
        names = [self.id2label[str(place)] for place in range(len(self.id2label))]
        rows = []
        for evidence, claim in inputs:
            if len(names) == 1:
                logits = [math.log(4.0) if opinion(evidence, claim) == "entailment" else -math.log(4.0)]
            else:
                logits = [math.log(p) for p in probabilities(evidence, claim, names)]
            row = [{"score": logit, "label": name} for logit, name in zip(logits, names, strict=True)]
            rows.append(sorted(row, key=lambda one: -one["score"]))
        return httpx.Response(200, json=rows)


@dataclass
class Vllm(Standin):
    """Serves ``/v1/models``, ``/classify`` and ``/score``. ``names`` are the labels in order; a model with one class
    has one name, and an embedding model has none. With ``logits``, no sigmoid is applied to the scores."""

    names: Sequence[str] = ("entailment", "neutral", "contradiction")
    separator: str = "[SEP]"
    logits: bool = False
    model: str = "org/nli"
    max_model_len: int | None = 512
    tells_labels: bool = True

    async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
        if (method, path) == ("GET", "/v1/models"):
            row = {"id": self.model, "object": "model", "root": self.model, "max_model_len": self.max_model_len}
            return httpx.Response(200, json={"object": "list", "data": [row]})
        if method == "POST" and path in ("/classify", "/score") and body["model"] != self.model:
            return httpx.Response(404, json={"error": {"message": "no such model", "code": 404}})
        if (method, path) == ("POST", "/classify") and self.names:
            return self._listed([self._class(text) for text in body["input"]])
        if (method, path) == ("POST", "/score") and len(self.names) < 2:
            pairs = zip(body["text_1"], body["text_2"], strict=True)
            return self._listed([{"object": "score", "score": self._number(*pair)} for pair in pairs])
        return httpx.Response(404, json={"detail": "Not Found"})

    def _class(self, text: str) -> dict[str, Any]:
        if len(self.names) == 1:
            return {"label": self.names[0], "probs": [0.5], "num_classes": 1}
        evidence, _, claim = text.partition(self.separator)
        probs = probabilities(evidence, claim, self.names)
        label = self.names[probs.index(max(probs))] if self.tells_labels else None
        return {"label": label, "probs": probs, "num_classes": len(probs)}

    def _number(self, evidence: str, claim: str) -> float:
        entailed = opinion(evidence, claim) == "entailment"
        if self.logits:
            return 6.0 if entailed else -6.0
        return 0.9 if entailed else 0.1

    def _listed(self, rows: Sequence[Mapping[str, Any]]) -> httpx.Response:
        # The rows are in any order, because each has an index.
        data = [{"index": place, **row} for place, row in enumerate(rows)][::-1]
        return httpx.Response(200, json={"id": "x-1", "object": "list", "model": self.model, "data": data, "usage": {}})


@dataclass
class Own(Standin):
    """Serves ``/info``, ``/judge`` and, if there is a ``tokenizer``, ``/tokenizer``. With ``fuses``, it accepts
    evidence as separate windows and scores each of them too."""

    languages: Sequence[str] | None = ("en",)
    model: str = "judge@1"
    fuses: bool = False
    tokenizer: bytes | None = None
    digest: str | None = None

    async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
        match method, path:
            case "GET", "/info":
                return httpx.Response(200, json=self.info())
            case "GET", "/tokenizer" if self.tokenizer is not None:
                return httpx.Response(200, content=self.tokenizer)
            case "POST", "/judge":
                assert len(body["pairs"]) <= 2
                rows = [self._scored(pair["evidence"], pair["claim"]) for pair in body["pairs"]]
                return httpx.Response(200, json={"scores": rows, "model": self.model})
        return httpx.Response(404)

    def info(self) -> dict[str, Any]:
        info = {"protocol": "groundlane-judge/1", "model": self.model, "max_tokens": 200, "max_batch": 2}
        return {**info, "languages": self.languages, "fuses": self.fuses, "tokenizer": self.digest}

    def _scored(self, evidence: str | list[str], claim: str) -> dict[str, Any]:
        if isinstance(evidence, list):
            assert self.fuses
            return {**self._scored(" ".join(evidence), claim), "parts": [self._scored(one, claim) for one in evidence]}
        row = probabilities(evidence, claim, ("entailment", "neutral", "contradiction"))
        return dict(zip(("entailed", "neutral", "contradicted"), row, strict=True))
