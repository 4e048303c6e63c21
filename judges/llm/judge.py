"""The LLM judge: verdicts on claims, a score for a reply, sentences taken apart."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence

from judges.llm.claim_verdicts import ClaimReader
from judges.llm.injection_fences import Fence
from judges.llm.llm_call import Caller, Observe, why_skipped
from judges.llm.openai_chat_model import ChatModel, OpenAiChat
from judges.llm.prices import PriceTable
from judges.llm.prompts import decompose_prompt
from judges.llm.providers import PROVIDERS, Endpoint, KeySource
from judges.llm.reply_score import ReplyScorer
from judges.llm.response_parsing import read_claims
from judges.llm.scoring_modes import ScoringMode
from judges.protocols import JudgeError
from judges.types import Chunk, Evidence, LlmCall, LlmScore, Opinion, ScoreRequest

log = logging.getLogger(__name__)


def _ignore(_call: LlmCall) -> None:
    pass


class LlmJudge:
    """One per process. Implements ``judges.protocols.ClaimJudge``.

    Args:
        keys: where the keys of the services come from.
        model: the one for claims and sentences; None: there is none, and only replies are scored, each by the model
            that is asked for.
        endpoints: the services, by name.
        prices: for ``cost_usd``.
        timeout_s: bounds each call, the wait for a free turn included.
        token_budget: most tokens of text in one call; what does not fit is split over several, never cut.
        concurrency: most calls at once.
        scoring_mode: the scale on which replies are scored.
        include_reasoning: whether a score comes with its reasoning; a verdict on a claim always does.
        observe: told of every call.
        chat: stands in for the ``openai`` client library.
        nonce: makes the secret of a call's marks.
    """

    def __init__(
        self,
        *,
        keys: KeySource,
        model: str | None = None,
        endpoints: Mapping[str, Endpoint] = PROVIDERS,
        prices: PriceTable | None = None,
        timeout_s: float = 10.0,
        token_budget: int = 12_000,
        concurrency: int = 16,
        scoring_mode: ScoringMode = ScoringMode.UNIT,
        include_reasoning: bool = True,
        observe: Observe = _ignore,
        chat: ChatModel | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._model = model
        self._nonce = nonce
        self._caller = Caller(
            chat or OpenAiChat(timeout_s=timeout_s),
            keys=keys,
            endpoints=endpoints,
            prices=prices or PriceTable(),
            timeout_s=timeout_s,
            concurrency=concurrency,
            observe=observe,
        )
        self._claims = ClaimReader(self._caller, self._fence, budget=token_budget)
        self._replies = ReplyScorer(
            self._caller,
            self._fence,
            budget=token_budget,
            scoring_mode=scoring_mode,
            include_reasoning=include_reasoning,
        )

    def _fence(self) -> Fence:
        return Fence(self._nonce())

    @property
    def name(self) -> str:
        """The model for claims; ``none`` if there is none."""
        return self._model or "none"

    @property
    def ready(self) -> bool:
        """Whether claims can be judged now: there is a model, a key for it, and its service does not keep failing."""
        return self.fault is None

    @property
    def fault(self) -> str | None:
        """Why claims cannot be judged now."""
        if self._model is None:
            return "no model is configured"
        try:
            self._caller.check(self._model)
        except JudgeError as error:
            return str(error)
        return None

    async def start(self) -> None:
        """Load the client library now, which takes a second or two, rather than at the first call. Asks nobody."""
        await self._caller.start()

    async def judge(
        self, claim: str, context: str, passages: Sequence[Evidence], record: Callable[[LlmCall], None]
    ) -> Opinion:
        """Say what ``passages``, the most relevant first, hold of ``claim``. Raises JudgeError or TimeoutError.

        Passages over the token budget are read in batches: support in any of them goes before everything, a
        contradiction before what was not found.
        """
        if self._model is None:
            raise JudgeError("no model is configured")
        return await self._claims.judge(self._model, claim, context, passages, record)

    async def decompose(self, sentence: str, context: str, record: Callable[[LlmCall], None]) -> Sequence[str]:
        """The atomic claims of ``sentence``; the sentence itself where the answer cannot be read.

        Raises JudgeError or TimeoutError.
        """
        if self._model is None:
            raise JudgeError("no model is configured")
        prompt = decompose_prompt(self._fence(), sentence, context)
        claims = await self._caller.ask("decompose", self._model, prompt, read_claims, record)
        return [sentence] if claims is None else claims

    async def score(self, request: ScoreRequest, reply: str, chunks: Sequence[Chunk]) -> LlmScore:
        """Score ``reply`` against ``chunks``, which its markers count from 1. Never raises for trouble with the LLM:
        ``skipped`` says why there is no score. An answer that cannot be read scores 0.5."""
        calls: list[LlmCall] = []
        try:
            found = await self._replies.score(request, reply, chunks, calls.append)
        except Exception as error:
            reason = why_skipped(error)
            if not isinstance(error, JudgeError | TimeoutError):
                log.error("a reply was not scored", exc_info=error)
            else:
                log.warning("a reply was not scored by %s: %s", request.model, error or reason)
            detail = str(error) if isinstance(error, JudgeError) else None
            return LlmScore(request=request, skipped=reason, detail=detail, calls=tuple(calls))
        score, reasoning = found
        return LlmScore(request=request, score=score, reasoning=reasoning, calls=tuple(calls))

    async def aclose(self) -> None:
        await self._caller.aclose()
