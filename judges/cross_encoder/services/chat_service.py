"""A generative judge behind a server with OpenAI's chat completions API: vLLM, Text Generation Inference, Ollama,
llama.cpp, or a hosted service."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from judges.cross_encoder.services.answer_tokens import read_chat_answer
from judges.cross_encoder.services.generative_forms import GenerativeForm, LynxForm, MiniCheckForm, PromptText
from judges.cross_encoder.services.pair_service import (
    COMMON_OPTIONS,
    Fetch,
    Key,
    PairService,
    ServiceAnswer,
    ServiceRequest,
    UnreadableAnswerError,
    entailment,
)

_TOP_LOGPROBS: Final = 5
"""Number of alternative tokens to request. It is the largest number that all supported servers accept."""


class ChatService(PairService):
    """Options: ``url``, the base URL of the API, such as ``http://vllm:8000/v1``; ``model``, the model's name on the
    server (default ``model``); ``prompt``, a file with the prompt (``generative_forms.PromptText``), for models that
    use one; ``logprobs``, set to ``false`` for a server that rejects requests for log-probabilities. The key is
    optional, because a self-hosted server may not need one."""

    OPTIONS = COMMON_OPTIONS | {"url", "model", "prompt", "logprobs"}
    max_claim_chars = 8_000
    max_evidence_chars = 60_000

    def __init__(
        self, name: str, options: Mapping[str, str], key: Key, key_help: str, *, form: GenerativeForm, model: str
    ) -> None:
        super().__init__(name, options, key, key_help)
        base = self._base_url("url", self._option("url", "such as http://vllm:8000/v1"))
        self._url = f"{base}/chat/completions"
        self.model = options.get("model", model)
        self._form = form
        variant = [options["model"]] if "model" in options else []
        if (path := options.get("prompt")) is not None:
            prompt = self._read_prompt(path)
            self._form = self._with_prompt(form, prompt)
            variant.append(f"prompt {blake2b(repr(prompt).encode(), digest_size=4).hexdigest()}")
        if variant:
            self.name = f"{name}({', '.join(variant)})"
        asked = options.get("logprobs", "true")
        if asked not in ("true", "false"):
            self._invalid("logprobs", "true or false", asked)
        self._logprobs = {"logprobs": True, "top_logprobs": _TOP_LOGPROBS} if asked == "true" else {}

    @property
    def fault(self) -> str | None:
        return None

    async def request(self, evidence: str, claim: str, fetch: Fetch) -> ServiceRequest:
        body = {
            "model": self.model,
            "temperature": 0,
            "max_tokens": self._form.max_tokens,
            **self._logprobs,
            **self._form.request_fields(evidence, claim),
        }
        key = self._key_source()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return ServiceRequest(url=self._url, body=json.dumps(body).encode(), headers=headers)

    def parse(self, answer: Any, evidence: str) -> ServiceAnswer:
        try:
            found = read_chat_answer(answer)
            entailed = self._form.entailed(found)
        except UnreadableAnswerError as error:
            raise UnreadableAnswerError(f"{self.name}: {error}") from None
        return ServiceAnswer(
            score=entailment(entailed),
            prompt_tokens=found.prompt_tokens,
            completion_tokens=found.completion_tokens,
        )

    def _read_prompt(self, path: str) -> PromptText:
        try:
            return PromptText.parse(Path(path).expanduser().read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"judge {self.name}: prompt: cannot use {path}: {error}") from None

    def _with_prompt(self, form: GenerativeForm, prompt: PromptText) -> GenerativeForm:
        match form:
            case MiniCheckForm():
                return MiniCheckForm(prompt=prompt)
            case LynxForm():
                return LynxForm(prompt=prompt)
        raise ValueError(
            f"judge {self.name}: prompt: not supported, because the model's own template builds the prompt"
        )
