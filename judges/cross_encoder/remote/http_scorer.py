"""A judge that is served elsewhere: Text Embeddings Inference, vLLM, or a server that speaks our own protocol."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import httpx

from judges.cross_encoder.judge_spec import split_list
from judges.cross_encoder.remote.groundlane_protocol import Plain, affinity
from judges.cross_encoder.remote.json_client import JsonClient
from judges.cross_encoder.remote.protocol_detection import KINDS, Target, connect
from judges.cross_encoder.remote.server_protocols import Server, check_template
from judges.cross_encoder.remote.token_estimate import open_counter, read_counter
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import Probabilities, Windows

log = logging.getLogger(__name__)

_ENDPOINTS = frozenset({"predict", "classify", "score", "judge"})
_MAX_TOKENS = 1_000_000
_MAX_CONCURRENCY = 1_000
_AFFINITY = "X-Session-Id"
"""By this header a router brings claims against the same evidence to the replica that has read it."""


class HttpScorer:
    """Sends pairs to the server at ``url``, at most ``concurrency`` requests at a time, each with no more pairs than
    the server takes at once.

    ``url`` may say what the server is (``tei+https://...``, ``vllm+...``, ``groundlane+...``) or end in the path that
    tells it (``/predict``, ``/classify``, ``/score``, ``/judge``); else ``start`` asks the server. ``options``, all of
    them texts:

    - ``model``: vLLM's name of the model; default the first one that it serves.
    - ``template``: needed for vLLM's ``/classify``, which takes one text: ``{evidence}[SEP]{claim}``, say.
    - ``labels``: what the probabilities of ``/classify`` mean, in order; default what its answers to examples tell.
    - ``max_tokens``: most tokens of evidence and claim together, where the server does not tell.
    - ``tokenizer``: the model's ``tokenizer.json``, to count tokens exactly; default what the server hands out, else
      an estimate on the safe side.
    - ``languages``: codes of the languages that the model knows; default all.
    - ``concurrency``: goes before the argument of that name.

    ``api_key`` goes along as a bearer token. ``timeout_s`` bounds each request: one whose connection breaks, or that
    the server cannot take right now, is sent again until then, unless that was in vain the last time. ``transport``
    stands in for the network in tests. Raises ValueError for a URL or an option that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, str] | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        concurrency: int = 8,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        options = options or {}
        self._target = _target(url, options)
        self._counter_path = options.get("tokenizer")
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._transport = transport
        self.concurrency = _whole(options, "concurrency", 1, _MAX_CONCURRENCY) or concurrency
        """Requests at a time."""
        self._turns = asyncio.Semaphore(self.concurrency)
        self._starting = asyncio.Lock()
        self._client: JsonClient | None = None
        self._server: Server | None = None
        self._count = open_counter(None)
        self._counts_by: str | None = None
        self._closed = False
        self.pairs_cut = 0
        """Pairs that were, by our count, longer than the model takes, and that the server cut."""

    @property
    def name(self) -> str:
        """The URL without what may be secret in it, and once connected the model instead."""
        return f"http:{self._server.model}" if self._server else f"http:{urlsplit(self._target.base).netloc}"

    @property
    def max_tokens(self) -> int:
        return self._connected()[1].room

    @property
    def languages(self) -> frozenset[str] | None:
        """Codes of the languages that the model knows; None for all, or where nobody says."""
        return self._target.languages or (self._server.languages if self._server else None)

    @property
    def fuses(self) -> bool:
        """Whether a claim is read against several windows at little more than the cost of one."""
        return self._server is not None and self._server.fuses

    def count_tokens(self, text: str) -> int:
        return sum(map(self._count, text.parts)) if isinstance(text, Windows) else self._count(text)

    async def start(self) -> None:
        """Ask the server what it is. Idempotent. Raises JudgeUnreachableError when it does not answer, which may pass,
        and JudgeUnavailableError when it is of no use."""
        async with self._starting:
            if self._closed:
                raise JudgeUnavailableError(f"{self.name} was closed")
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
        own = self._counter_path is not None
        if own:
            self._count = await asyncio.to_thread(open_counter, self._counter_path)
        server = await connect(client, self._target)
        if not own and isinstance(server, Plain) and server.tokenizer not in (None, self._counts_by):
            content = await client.get_file("/tokenizer")
            self._count = await asyncio.to_thread(read_counter, content, server.tokenizer)
            self._counts_by = server.tokenizer
        self._server = server

    async def aclose(self) -> None:
        """Let the connections go. It cannot be started again."""
        self._closed = True
        self._server = None
        if self._client is not None:
            await self._client.aclose()

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        client, server = self._connected()
        self._note_long(server, pairs)
        parts = [pairs[start : start + server.batch] for start in range(0, len(pairs), server.batch)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(client, server, part)) for part in parts]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [one for task in tasks for one in task.result()]

    async def _ask(
        self, client: JsonClient, server: Server, pairs: Sequence[tuple[str, str]]
    ) -> Sequence[Probabilities]:
        headers = {_AFFINITY: affinity(pairs)} if server.fuses else {}
        async with self._turns:
            answer = await client.post(server.path, server.ask(pairs), headers=headers, patience_s=self._timeout_s)
        try:
            scores = server.read(answer, pairs)
        except JudgeError as error:
            raise JudgeError(f"{self.name}: {error}") from error
        if isinstance(server, Plain) and server.is_another(answer):
            await self._connect_anew(client, server)
        return scores

    async def _connect_anew(self, client: JsonClient, known: Server) -> None:
        """The server has another model than when it was asked: from now on that is the one that counts."""
        async with self._starting:
            if self._server is not known:
                return
            try:
                await self._connect(client)
            except JudgeError as error:
                log.warning("%s has a new model, and does not say which: %s", self.name, error)

    def _connected(self) -> tuple[JsonClient, Server]:
        if self._client is None or self._server is None:
            raise JudgeUnavailableError(f"{self.name} is not connected")
        return self._client, self._server

    def _note_long(self, server: Server, pairs: Sequence[tuple[str, str]]) -> None:
        long = sum(self._longest(evidence) + self._count(claim) > server.room for evidence, claim in pairs)
        if long:
            self.pairs_cut += long
            log.warning("%d of %d pairs may be over the %d tokens of %s", long, len(pairs), server.room, self.name)

    def _longest(self, evidence: str) -> int:
        """A judge that fuses reads each window by itself."""
        parts = evidence.parts if self.fuses and isinstance(evidence, Windows) else (evidence,)
        return max(map(self._count, parts))


def _target(url: str, options: Mapping[str, str]) -> Target:
    kind, plus, rest = url.partition("+")
    if not plus or "/" in kind:
        kind, rest = "", url
    parts = urlsplit(rest)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"judge {url!r}: expected a URL such as http://judge:8080 or tei+https://judge")
    if kind and kind not in KINDS:
        raise ValueError(f"judge {url!r}: the kind before '+' is one of {', '.join(KINDS)}")
    if parts.username or parts.password:
        raise ValueError("judge: a key does not belong in the URL; set GROUNDLANE_JUDGE_API_KEY")
    if parts.query or parts.fragment:
        raise ValueError(f"judge {url!r}: expected a URL without query or fragment")
    if template := options.get("template"):
        check_template(template)
    folder, _, last = parts.path.rstrip("/").rpartition("/")
    path = f"/{last}" if last in _ENDPOINTS else ""
    if not path:
        folder = parts.path.rstrip("/")
    if kind != "groundlane" and path != "/judge":
        folder = folder.removesuffix("/v1")  # as in the base URL of an OpenAI client; vLLM has /classify outside it
    return Target(
        base=f"{parts.scheme}://{parts.netloc}{folder}",
        kind=kind,
        path=path,
        model=options.get("model"),
        template=template,
        labels=tuple(split_list(options.get("labels", ""))),
        max_tokens=_whole(options, "max_tokens", 16, _MAX_TOKENS),
        languages=frozenset(split_list(options["languages"])) if "languages" in options else None,
    )


def _whole(options: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{name}: expected a whole number from {least} to {most}, got {text!r}")
    return int(text)
