"""LiteLLM: a guardrail for its proxy. Needs ``litellm[proxy]``.

guardrails:
  - guardrail_name: grounded
    litellm_params:
      guardrail: groundlane.integrations.litellm.GroundlaneGuardrail
      mode: [pre_call, post_call]
      default_on: true
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

from fastapi import HTTPException
from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.proxy._types import ProxyException
from litellm.types.guardrails import GuardrailEventHooks
from litellm.types.utils import Choices, Delta, Message, ModelResponse, ModelResponseStream, StreamingChoices

from groundlane._client import AsyncGroundlane
from groundlane._errors import GatewayStatusError, GroundlaneError, PolicyViolationError
from groundlane._transport import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S
from groundlane.integrations._documents import document
from groundlane.integrations._gate import Gated
from groundlane.integrations._guard import REPLACEMENT, BlockOn, Guard, UngroundedError, Verdict
from groundlane.integrations._question import last_question
from groundlane.integrations._retrieval import ablocked_documents

__all__ = ["GroundlaneGuardrail"]

_log = logging.getLogger("groundlane.integrations")
_CHAT = frozenset({"completion", "acompletion"})
_OURS = ("documents", "grounding")
_KNOWN = frozenset({"id", "object", "created", "model", "system_fingerprint", "usage", "choices"})
"""The fields of a blocked reply, and of each chunk of a checked stream."""
_UNAVAILABLE = {"error": "The reply could not be checked.", "type": "grounding_unavailable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The documents and the question that a reply is checked against. ``question`` is None if it isn't known."""

    documents: list[dict[str, Any]]
    question: str | None


class GroundlaneGuardrail(CustomGuardrail):
    """Checks replies to chat completion requests with ``documents``. Other replies are returned unchecked. The question
    that a reply answers is the text of the user's messages at the end of the request. It isn't known if another message
    follows them, or if they contain anything but text.

    ``mode`` must contain ``pre_call`` and ``post_call``. Before the call, ``documents`` is removed from the request. If
    ``agent`` is given, its retrieval policies may reject the request with 400. After the call, a blocked reply gets the
    content ``replacement`` and the finish reason ``content_filter``, without tool calls, reasoning, log probabilities
    and other fields. With ``on_block="error"``, the client gets 400 instead.

    A streamed reply is delivered sentence by sentence, after each sentence is checked. It ends at a blocked sentence.
    If the guard decides at the end, the whole reply is delivered then. Tool calls and reasoning follow the text if it
    isn't blocked. Log probabilities and the fields that a provider adds to chunks are left out.

    ``api_base`` and ``api_key`` default to ``GROUNDLANE_BASE_URL`` and ``GROUNDLANE_API_KEY``. With ``in_process``, the
    proxy starts a judge process instead of calling a gateway. If no verdict is available,
    ``unreachable_fallback="fail_closed"`` returns 503, and ``"fail_open"`` delivers the reply and logs a warning. For
    ``policy``, ``options`` and ``block_on``, see ``groundlane.integrations.Guard``. All other arguments are passed to
    LiteLLM.
    """

    use_native_lifecycle_hooks: ClassVar[bool] = True

    def __init__(
        self,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        in_process: bool = False,
        agent: str | None = None,
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
        block_on: BlockOn = "contradicted",
        on_block: Literal["replace", "error"] = "replace",
        replacement: str = REPLACEMENT,
        unreachable_fallback: Literal["fail_closed", "fail_open"] = "fail_closed",
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        hooks = [GuardrailEventHooks.pre_call, GuardrailEventHooks.post_call]
        mode = kwargs.get("event_hook")
        if isinstance(mode, str | list) and not {"pre_call", "post_call"} <= _names(mode):
            raise ValueError(
                "mode must include pre_call, which removes the documents, and post_call, which checks the reply"
            )
        super().__init__(supported_event_hooks=hooks, **kwargs)
        if on_block not in ("replace", "error"):
            raise ValueError(f"on_block must be replace or error, not {on_block!r}")
        self._client: AsyncGroundlane | None = None
        if not in_process:
            self._client = AsyncGroundlane(
                api_base, api_key=api_key, timeout=timeout or DEFAULT_TIMEOUT_S, max_retries=DEFAULT_RETRIES
            )
        elif agent is not None:
            raise ValueError("agent: retrieval policies need a gateway, but in_process doesn't use one")
        self._guard = Guard(
            base_url=api_base,
            api_key=api_key,
            in_process=in_process,
            policy=policy,
            options=options,
            block_on=block_on,
            on_error="open" if unreachable_fallback == "fail_open" else "closed",
            async_client=self._client,
        )
        self._agent, self._on_block, self._replacement = agent, on_block, replacement
        self._requests: WeakKeyDictionary[Any, _Request] = WeakKeyDictionary()
        """The pending requests, keyed by LiteLLM's logging object. They are not stored in the request metadata, because
        LiteLLM would log them."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Remove the documents from the request and apply the retrieval policies to them."""
        given = data.get("documents")
        if given is None:
            return data
        if call_type not in _CHAT:
            raise _refused(f"documents: only chat completions are checked, not {call_type}")
        documents = _read(given)
        for name in _OURS:
            data.pop(name, None)
        record = data.get("litellm_logging_obj")
        if record is None:
            raise HTTPException(500, "LiteLLM has no record of the request, so its documents are unknown")
        if self._agent is not None and self._client is not None:
            await self._ask_policies(self._client, self._agent, documents)
        messages = data.get("messages")
        question = last_question(messages) if isinstance(messages, list) else None
        self._requests[record] = _Request(documents=documents, question=question)
        return data

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """Check each choice in a non-streamed reply."""
        request = self._of(data)
        if request is not None and isinstance(response, ModelResponse):
            for place, choice in enumerate(response.choices):
                if isinstance(choice, Choices) and isinstance(choice.message.content, str) and choice.message.content:
                    verdict = await self._check(choice.message.content, request)
                    if verdict.blocked:
                        if self._on_block == "error":
                            raise HTTPException(400, _blocked(verdict))
                        response.choices[place] = Choices(
                            index=choice.index,
                            message=Message(content=self._replacement),
                            finish_reason="content_filter",
                        )
                        _keep_known(response)
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Deliver each sentence of a streamed reply once it is checked."""
        request = self._of(request_data)
        replacement = self._replacement if self._on_block == "replace" else None
        chunks = response if request is None else _Stream(self._guard, request, replacement).run(response)
        # An HTTPException in a stream would only break the connection.
        try:
            async for chunk in chunks:
                yield chunk
        except UngroundedError as error:
            told = _blocked(error.verdict)
            raise ProxyException(told["error"], told["type"], None, 400) from error
        except GroundlaneError as error:
            _unavailable(error)
            raise ProxyException(_UNAVAILABLE["error"], _UNAVAILABLE["type"], None, 503) from error

    def _of(self, data: Mapping[str, Any]) -> _Request | None:
        """Return the data that a reply is checked against, or None if the request had no documents."""
        record = data.get("litellm_logging_obj")
        return None if record is None else self._requests.get(record)

    async def _check(self, text: str, request: _Request) -> Verdict:
        try:
            return await self._guard.acheck(text, request.documents, question=request.question)
        except GroundlaneError as error:
            raise _unavailable(error) from error

    async def _ask_policies(self, client: AsyncGroundlane, agent: str, documents: list[dict[str, Any]]) -> None:
        try:
            refused = await ablocked_documents(client, agent, documents)
        except GroundlaneError as error:
            if self._guard.on_error == "closed" or isinstance(error, GatewayStatusError):
                raise _unavailable(error) from error
            _log.warning("retrieval policies were not applied, and all documents were kept (fail_open): %s", error)
            return
        if refused:
            raise _violation(refused[min(refused)])


class _Choice:
    """A choice in a streamed reply. ``others`` are its parts that aren't text, such as tool calls and reasoning."""

    def __init__(self, index: int, gated: Gated) -> None:
        self.index, self.gated = index, gated
        self.others: list[Delta] = []
        self.ended = False


class _Stream:
    """A streamed reply, whose chunks are rewritten to contain only text that may be delivered. Other parts follow when
    the text has ended, if it isn't blocked. If ``replacement`` is None, blocked text raises UngroundedError."""

    def __init__(self, guard: Guard, request: _Request, replacement: str | None) -> None:
        self._guard, self._request, self._replacement = guard, request, replacement
        self._choices: dict[int, _Choice] = {}

    async def run(self, chunks: Any) -> AsyncIterator[Any]:
        last: Any = None
        try:
            async for chunk in chunks:
                last = chunk
                choices = list(getattr(chunk, "choices", ()))
                if choices:
                    chunk.choices = [await self._ruled(choice) for choice in choices]
                    _keep_known(chunk)
                for choice in choices:
                    for other in self._released(choice.index):
                        yield _chunk(chunk, other)
                yield chunk
                if self._choices and all(choice.gated.blocked for choice in self._choices.values()):
                    return
        finally:
            if hasattr(chunks, "aclose"):
                await chunks.aclose()
        async for rest in self._rest():
            yield _chunk(last, rest)

    async def _ruled(self, given: Any) -> StreamingChoices:
        """Return a choice with the text that may be delivered now."""
        choice = self._choices.get(given.index)
        if choice is None:
            gated = Gated(
                self._guard,
                lambda: self._request.documents,
                replacement=self._replacement or "",
                question=lambda: self._request.question,
            )
            choice = self._choices[given.index] = _Choice(given.index, gated)
        gated, delta, content = choice.gated, given.delta, given.delta.content
        was_blocked, finish = gated.blocked, given.finish_reason
        said = "" if was_blocked else await gated.apush(content or "")
        if finish is not None and not choice.ended:
            choice.ended = True
            said += await gated.afinish()
        if gated.blocked:
            self._raise_if_wanted(gated)
            finish = None if was_blocked else "content_filter"
            choice.ended = True
        text = Delta(content=said if said or content is not None else None, role=delta.role)
        delta.content = delta.role = None
        choice.others.append(delta)
        return StreamingChoices(index=choice.index, delta=text, finish_reason=finish)

    def _released(self, index: int) -> list[StreamingChoices]:
        """Return the other parts of a choice, once, if its text has ended and isn't blocked."""
        choice = self._choices[index]
        if not choice.ended:
            return []
        others, choice.others = choice.others, []
        others = [] if choice.gated.blocked else [delta for delta in others if any(delta.model_dump().values())]
        return [StreamingChoices(index=index, delta=delta) for delta in others]

    async def _rest(self) -> AsyncIterator[StreamingChoices]:
        """Yield the remaining text, after checking it, and the other parts of each choice that the upstream ended
        without a finish reason."""
        for index, choice in self._choices.items():
            if choice.ended:
                continue
            choice.ended = True
            said = await choice.gated.afinish()
            self._raise_if_wanted(choice.gated)
            for other in self._released(index):
                yield other
            finish = "content_filter" if choice.gated.blocked else None
            if said or finish:
                yield StreamingChoices(index=index, delta=Delta(content=said), finish_reason=finish)

    def _raise_if_wanted(self, gated: Gated) -> None:
        if self._replacement is None and gated.blocked and gated.verdict is not None:
            raise UngroundedError(gated.verdict)


def _chunk(like: ModelResponseStream, choice: StreamingChoices) -> ModelResponseStream:
    return ModelResponseStream(id=like.id, created=like.created, model=like.model, choices=[choice])


def _keep_known(reply: Any) -> None:
    """Remove all but the known fields of a reply or chunk, because other fields may contain unchecked text."""
    for name in {*reply.model_fields_set, *(reply.model_extra or ())} - _KNOWN:
        setattr(reply, name, None)


def _names(mode: Any) -> set[str]:
    """Return the hook names in a mode, which contains strings or members of LiteLLM's enum."""
    hooks = mode if isinstance(mode, list) else [mode]
    return {hook.value if isinstance(hook, GuardrailEventHooks) else str(hook) for hook in hooks}


def _blocked(verdict: Verdict) -> dict[str, Any]:
    return {
        "error": f"The reply is not grounded in the documents: {verdict.reason}.",
        "type": "grounding_policy_violation",
        "verdict": verdict.name,
        "trust_score": verdict.result.trust_score if verdict.result else None,
    }


def _read(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise _refused("documents: expected a list")
    found = []
    for index, item in enumerate(given):
        text = item.get("text") if isinstance(item, Mapping) else item
        if not isinstance(text, str) or not text.strip():
            raise _refused(f"documents[{index}]: expected a string or an object with a 'text' field")
        known = item if isinstance(item, Mapping) else {}
        found.append(document(text, id=known.get("id"), metadata=known))
    return found


def _refused(message: str) -> HTTPException:
    return HTTPException(400, {"error": message, "type": "invalid_request_error"})


def _violation(error: PolicyViolationError) -> HTTPException:
    told = {"error": error.message, "type": "retrieval_policy_violation", "code": error.code, "param": error.param}
    return HTTPException(400, told)


def _unavailable(error: GroundlaneError) -> HTTPException:
    """Build the error that tells the client that there is no verdict, and log the reason."""
    _log.error("no verdict from the gateway (fail_closed): %s", error)
    return HTTPException(503, _UNAVAILABLE)
