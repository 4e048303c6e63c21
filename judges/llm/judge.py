"""The LLM judge: gives verdicts on claims, scores replies and decomposes sentences."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence

from judges.llm.claim_verdicts import ClaimsCall, ClaimScorer, ClaimScores, ClaimVerifier
from judges.llm.injection_fences import Fence
from judges.llm.llm_client import LlmClient, Observe, why_skipped
from judges.llm.openai_chat_model import ChatModel, OpenAiChatModel
from judges.llm.prices import PriceTable
from judges.llm.prompts import decompose_prompt
from judges.llm.providers import PROVIDERS, Endpoint, LlmKeySource
from judges.llm.reply_score import ReplyScorer
from judges.llm.response_parsing import read_claims
from judges.llm.scoring_modes import LlmScoringMode
from judges.llm_types import LlmCall, LlmScore, LlmVerdict, ScoreRequest
from judges.protocols import JudgeError
from judges.types import Chunk, Claim, Evidence

log = logging.getLogger(__name__)


def _ignore(_call: LlmCall) -> None:
    pass


class LlmJudge:
    """The LLM judge; there is one instance per process. Implements ``judges.protocols.LlmClaimJudge``.

    Args:
        keys: provides the API keys of the endpoints.
        model: the model that judges claims and decomposes sentences. If this is None, the judge only scores replies,
            each with the model named in the request.
        endpoints: the services, by name.
        prices: the price table for ``cost_usd``.
        timeout_s: time limit per call, including the wait for a free slot.
        token_budget: maximum number of tokens of text per call. Longer input is split over several calls, never
            truncated.
        concurrency: maximum number of concurrent calls.
        scoring_mode: the scale for reply scores.
        include_reasoning: whether scores include the reasoning; verdicts on claims always do.
        observe: called with every call.
        chat: replaces the ``openai`` client library.
        nonce: creates the nonce for a call's fences.
    """

    def __init__(
        self,
        *,
        keys: LlmKeySource,
        model: str | None = None,
        endpoints: Mapping[str, Endpoint] = PROVIDERS,
        prices: PriceTable | None = None,
        timeout_s: float = 10.0,
        token_budget: int = 12_000,
        concurrency: int = 16,
        scoring_mode: LlmScoringMode = LlmScoringMode.UNIT,
        include_reasoning: bool = True,
        observe: Observe = _ignore,
        chat: ChatModel | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._model = model
        self._nonce = nonce
        self._client = LlmClient(
            chat or OpenAiChatModel(timeout_s=timeout_s),
            keys=keys,
            endpoints=endpoints,
            prices=prices or PriceTable(),
            timeout_s=timeout_s,
            concurrency=concurrency,
            observe=observe,
        )
        self._claims = ClaimVerifier(self._client, self._fence, budget=token_budget)
        self._claim_scores = ClaimScorer(self._client, self._fence, budget=token_budget)
        self._replies = ReplyScorer(
            self._client,
            self._fence,
            budget=token_budget,
            scoring_mode=scoring_mode,
            include_reasoning=include_reasoning,
        )

    def _fence(self) -> Fence:
        return Fence(self._nonce())

    @property
    def name(self) -> str:
        """The model that judges claims, or ``none`` if no model is configured."""
        return self._model or "none"

    @property
    def ready(self) -> bool:
        """Whether claims can be judged now. This requires a configured model, its key, and an endpoint that isn't
        failing repeatedly."""
        return self.fault is None

    @property
    def fault(self) -> str | None:
        """Why claims cannot be judged now, or None if they can."""
        return "no model is configured" if self._model is None else self.fault_of(self._model)

    def fault_of(self, model: str) -> str | None:
        """Return why ``model`` cannot be called now, or None if it can."""
        try:
            self._client.check(model)
        except JudgeError as error:
            return str(error)
        return None

    async def start(self) -> None:
        """Import the client library now instead of at the first call, because this takes a second or two. Sends
        nothing."""
        await self._client.start()

    async def judge(
        self, claim: str, context: str, passages: Sequence[Evidence], record: Callable[[LlmCall], None]
    ) -> LlmVerdict:
        """Judge ``claim`` against ``passages``, which are ordered most relevant first. Raises JudgeError or
        TimeoutError.

        Passages that exceed the token budget are judged in batches. Support in any batch takes precedence, then a
        contradiction.
        """
        if self._model is None:
            raise JudgeError("no model is configured")
        return await self._claims.judge(self._model, claim, context, passages, record)

    async def decompose(self, sentence: str, context: str, record: Callable[[LlmCall], None]) -> Sequence[str]:
        """Split ``sentence`` into atomic claims. Return the sentence itself if the LLM's answer cannot be parsed.

        Raises JudgeError or TimeoutError.
        """
        if self._model is None:
            raise JudgeError("no model is configured")
        prompt = decompose_prompt(self._fence(), sentence, context)
        claims = await self._client.ask("decompose", self._model, prompt, read_claims, record)
        return [sentence] if claims is None else claims

    def claims_calls(
        self, claims: Sequence[Claim], chunks: Sequence[Chunk], *, mode: LlmScoringMode, reasoning: bool
    ) -> Sequence[ClaimsCall]:
        """Build the calls that score all ``claims`` of a reply against ``chunks``: a single call, unless it would
        exceed the token budget. ``mode`` is ``binary_yes_no`` or ``scale_1_5``. Raises JudgeOverloadedError."""
        return self._claim_scores.calls(claims, chunks, mode=mode, reasoning=reasoning)

    async def score_claims(
        self, calls: Sequence[ClaimsCall], record: Callable[[LlmCall], None], *, mode: LlmScoringMode
    ) -> ClaimScores | None:
        """Make ``calls``, and return the scores. Return None if an answer cannot be parsed. Raises JudgeError or
        TimeoutError."""
        if self._model is None:
            raise JudgeError("no model is configured")
        return await self._claim_scores.score(self._model, calls, record, mode=mode)

    async def score(self, request: ScoreRequest, reply: str, chunks: Sequence[Chunk]) -> LlmScore:
        """Score ``reply`` against ``chunks``, which the reply's citation markers number from 1. LLM failures are not
        raised; ``skipped`` says why there is no score. An answer that cannot be parsed scores 0.5.
        """
        calls: list[LlmCall] = []
        try:
            found = await self._replies.score(request, reply, chunks, calls.append)
        except Exception as error:
            reason = why_skipped(error)
            if not isinstance(error, JudgeError | TimeoutError):
                log.error("cannot score a reply", exc_info=error)
            else:
                log.warning("%s cannot score a reply: %s", request.model, error or reason)
            detail = str(error) if isinstance(error, JudgeError) else None
            return LlmScore(request=request, skipped=reason, detail=detail, calls=tuple(calls))
        score, reasoning = found
        return LlmScore(request=request, score=score, reasoning=reasoning, calls=tuple(calls))

    async def aclose(self) -> None:
        await self._client.aclose()
