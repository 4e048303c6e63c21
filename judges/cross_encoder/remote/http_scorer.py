"""A remote judge: Text Embeddings Inference, vLLM, or a server with Groundlane's own protocol."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import httpx

from judges.call_recording import record_call
from judges.cross_encoder.judge_spec import split_list
from judges.cross_encoder.remote.groundlane_protocol import GroundlaneProtocol, affinity
from judges.cross_encoder.remote.json_client import JsonClient
from judges.cross_encoder.remote.protocol_detection import KINDS, JudgeEndpoint, connect
from judges.cross_encoder.remote.server_protocols import JudgeServerProtocol, check_template
from judges.cross_encoder.remote.token_estimate import open_counter, read_counter
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import EvidenceWindows, Probabilities, Windowing

log = logging.getLogger(__name__)

_ENDPOINTS = frozenset({"predict", "classify", "score", "judge"})
_MAX_TOKENS = 1_000_000
_MAX_CONCURRENCY = 1_000
_AFFINITY_HEADER = "X-Session-Id"
"""A router uses this header to send claims about the same evidence to the replica that has it cached."""


class HttpScorer:
    """Scores pairs with the server at ``url``. Each request contains as many pairs as the server accepts.

    ``url`` may name the kind of server (``tei+https://...``, ``vllm+...``, ``groundlane+...``) or end in a path that
    implies it (``/predict``, ``/classify``, ``/score``, ``/judge``); otherwise ``start`` detects it. The values of
    ``options`` are strings:

    - ``model``: the name of the model in vLLM. Defaults to the first one that it serves.
    - ``template``: required for vLLM's ``/classify``, which takes one string. Example: ``{evidence}[SEP]{claim}``.
    - ``labels``: the labels of the probabilities from ``/classify``, in order. Detected from examples by default.
    - ``max_tokens``: maximum number of tokens in evidence and claim together; needed if the server does not report it.
    - ``tokenizer``: path of the model's ``tokenizer.json``, for counting tokens exactly. Defaults to the server's
      tokenizer, or to a conservative estimate if it has none.
    - ``languages``: codes of the languages that the model supports. Defaults to all.
    - ``concurrency``: overrides the argument ``concurrency``.

    Args:
        url: the server's URL. Raises ValueError for an invalid URL or option.
        options: see above.
        api_key: sent as a bearer token.
        timeout_s: time limit for each request, including retries after temporary failures. Once retries have failed,
            later requests are not retried until one succeeds.
        concurrency: maximum number of concurrent requests.
        observe: called with every service call that the judge reports. The recorders of ``judges.call_recording`` are
            called too.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, str] | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        concurrency: int = 8,
        observe: Callable[[LlmCall], None] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        options = options or {}
        self._target = _target(url, options)
        self._tokenizer_path = options.get("tokenizer")
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._observe = observe
        self._transport = transport
        self.concurrency = _integer(options, "concurrency", 1, _MAX_CONCURRENCY) or concurrency
        """Maximum number of concurrent requests."""
        self._slots = asyncio.Semaphore(self.concurrency)
        self._start_lock = asyncio.Lock()
        self._client: JsonClient | None = None
        self._server: JudgeServerProtocol | None = None
        self._count = open_counter(None)
        self._tokenizer_digest: str | None = None
        self._closed = False
        self.pairs_cut = 0
        """Number of pairs that exceed the model's limit by our count, so that the server has truncated them."""

    @property
    def name(self) -> str:
        """The name of the model or, before ``start``, the host in the URL."""
        return f"http:{self._server.model}" if self._server else f"http:{urlsplit(self._target.base).netloc}"

    @property
    def max_tokens(self) -> int:
        return self._connected()[1].max_tokens

    @property
    def languages(self) -> frozenset[str] | None:
        """Codes of the languages that the model supports; None means all, or unknown."""
        return self._target.languages or (self._server.languages if self._server else None)

    @property
    def fuses(self) -> bool:
        """Whether a claim with several windows takes barely longer than a claim with one."""
        return self._server is not None and self._server.fuses

    @property
    def threshold(self) -> float | None:
        """The P(entailed) at which the model's authors call a claim supported, if the server is a Groundlane judge
        server that reports it.
        """
        return self._server.threshold if isinstance(self._server, GroundlaneProtocol) else None

    @property
    def stage_thresholds(self) -> tuple[float | None, ...]:
        """The thresholds of a cascade's judges, if the server is a Groundlane judge server with a cascade; otherwise
        empty."""
        return self._server.stage_thresholds if isinstance(self._server, GroundlaneProtocol) else ()

    @property
    def paid(self) -> bool:
        """Whether the server reports the costs of calls to services."""
        return isinstance(self._server, GroundlaneProtocol) and self._server.paid

    @property
    def windowing(self) -> Windowing | None:
        """How evidence is cut for the model, if the server is a Groundlane judge server that reports it."""
        return self._server.windowing if isinstance(self._server, GroundlaneProtocol) else None

    def count_tokens(self, text: str) -> int:
        return sum(map(self._count, text.parts)) if isinstance(text, EvidenceWindows) else self._count(text)

    async def start(self) -> None:
        """Connect and detect the server's protocol. Idempotent.

        Raises JudgeUnreachableError if the server does not answer (which may be temporary) and JudgeUnavailableError if
        it cannot be used.
        """
        async with self._start_lock:
            if self._closed:
                raise JudgeUnavailableError(f"{self.name} is closed")
            if self._server is not None:
                return
            if self._client is None:
                self._client = JsonClient(
                    self._target.base,
                    api_key=self._api_key,
                    timeout_s=self._timeout_s,
                    connections=self.concurrency,
                    transport=self._transport,
                )
            await self._connect(self._client)

    async def _connect(self, client: JsonClient) -> None:
        own = self._tokenizer_path is not None
        if own:
            self._count = await asyncio.to_thread(open_counter, self._tokenizer_path)
        server = await connect(client, self._target)
        if (
            not own
            and isinstance(server, GroundlaneProtocol)
            and server.tokenizer not in (None, self._tokenizer_digest)
        ):
            content = await client.get_file("/tokenizer")
            self._count = await asyncio.to_thread(read_counter, content, server.tokenizer)
            self._tokenizer_digest = server.tokenizer
        self._server = server

    async def aclose(self) -> None:
        """Close the connections. The scorer cannot be started again."""
        self._closed = True
        self._server = None
        if self._client is not None:
            await self._client.aclose()

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        client, server = self._connected()
        self._warn_if_long(server, pairs)
        parts = [pairs[start : start + server.max_batch] for start in range(0, len(pairs), server.max_batch)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(client, server, part)) for part in parts]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [one for task in tasks for one in task.result()]

    async def _ask(
        self, client: JsonClient, server: JudgeServerProtocol, pairs: Sequence[tuple[str, str]]
    ) -> Sequence[Probabilities]:
        headers = {_AFFINITY_HEADER: affinity(pairs)} if server.fuses else {}
        async with self._slots:
            answer = await client.post(
                server.path, server.request_body(pairs), headers=headers, retry_s=self._timeout_s
            )
        try:
            scores = server.parse(answer, pairs)
            if isinstance(server, GroundlaneProtocol):
                self._report(server.calls(answer))
        except JudgeError as error:
            raise JudgeError(f"{self.name}: {error}") from error
        if isinstance(server, GroundlaneProtocol) and server.model_changed(answer):
            await self._reconnect(client, server)
        return scores

    def _report(self, calls: Iterable[LlmCall]) -> None:
        for call in calls:
            record_call(call)
            if self._observe is not None:
                self._observe(call)

    async def _reconnect(self, client: JsonClient, known: JudgeServerProtocol) -> None:
        """Switch to the new model after the server has changed models."""
        async with self._start_lock:
            if self._server is not known:
                return
            try:
                await self._connect(client)
            except JudgeError as error:
                log.warning("cannot identify the new model of %s: %s", self.name, error)

    def _connected(self) -> tuple[JsonClient, JudgeServerProtocol]:
        if self._client is None or self._server is None:
            raise JudgeUnavailableError(f"{self.name} is not connected")
        return self._client, self._server

    def _warn_if_long(self, server: JudgeServerProtocol, pairs: Sequence[tuple[str, str]]) -> None:
        long = sum(self._longest(evidence) + self._count(claim) > server.max_tokens for evidence, claim in pairs)
        if long:
            self.pairs_cut += long
            log.warning(
                "%d of %d pairs may exceed %d tokens, the limit of %s", long, len(pairs), server.max_tokens, self.name
            )

    def _longest(self, evidence: str) -> int:
        """Return the number of tokens in the longest text that the model reads. A model that fuses windows reads each
        window separately."""
        parts = evidence.parts if self.fuses and isinstance(evidence, EvidenceWindows) else (evidence,)
        return max(map(self._count, parts))


def _target(url: str, options: Mapping[str, str]) -> JudgeEndpoint:
    kind, plus, rest = url.partition("+")
    if not plus or "/" in kind:
        kind, rest = "", url
    parts = urlsplit(rest)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"judge {url!r}: expected a URL such as http://judge:8080 or tei+https://judge")
    if kind and kind not in KINDS:
        raise ValueError(f"judge {url!r}: unsupported kind before '+'; expected one of {', '.join(KINDS)}")
    if parts.username or parts.password:
        raise ValueError("judge: remove the key from the URL and set GROUNDLANE_JUDGE_API_KEY")
    if parts.query or parts.fragment:
        raise ValueError(f"judge {url!r}: expected a URL without query or fragment")
    if template := options.get("template"):
        check_template(template)
    folder, _, last = parts.path.rstrip("/").rpartition("/")
    path = f"/{last}" if last in _ENDPOINTS else ""
    if not path:
        folder = parts.path.rstrip("/")
    if kind != "groundlane" and path != "/judge":
        folder = folder.removesuffix("/v1")  # users paste an OpenAI base URL, but vLLM's /classify isn't under /v1
    return JudgeEndpoint(
        base=f"{parts.scheme}://{parts.netloc}{folder}",
        kind=kind,
        path=path,
        model=options.get("model"),
        template=template,
        labels=tuple(split_list(options.get("labels", ""))),
        max_tokens=_integer(options, "max_tokens", 16, _MAX_TOKENS),
        languages=frozenset(split_list(options["languages"])) if "languages" in options else None,
    )


def _integer(options: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{name}: expected an integer from {least} to {most}, got {text!r}")
    return int(text)
