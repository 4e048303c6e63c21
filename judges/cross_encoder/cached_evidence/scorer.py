"""A cross-encoder that caches evidence.

Evidence tokens do not attend to the claim, so a window's states are computed once and kept. The model is exported as
two ONNX graphs (see ``judges.training.shipping.onnx_export``). One computes a window's keys and values in every layer.
The other reads a claim against the keys and values of several windows, separately and together, in one pass. So for
each claim, only the claim's own tokens are computed, and judging a sentence takes a fraction of the time that a plain
cross-encoder needs.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime
from msgspec.structs import replace
from tokenizers import Tokenizer

from judges.cross_encoder.label_mapping import LabelMapping, read_label_mapping
from judges.cross_encoder.model_files import cores, sha256_of, verify_checksums
from judges.cross_encoder.threaded_scorer import JudgeThreadPool
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import EvidenceWindows, Probabilities

log = logging.getLogger(__name__)

EVIDENCE_GRAPH: Final = "evidence.onnx"
"""A model folder that contains this file holds a model that caches evidence."""
_CLAIM_GRAPH: Final = "claim.onnx"
_WEIGHTS: Final = "weights.bin"
_SPECIALS_OF_CLAIM: Final = 2
_READS: Final = "reads"

_STATES_BYTES: Final = 128 * 1024 * 1024
"""The size of the cache, enough for about 160 windows: those of 16 replies with five documents each. The windows for
the next reply must not evict those still needed for the current one."""

Half = npt.NDArray[np.float16]
States = tuple[Half, ...]
"""A window's keys and values, each of shape (layers, heads, 1, tokens, size)."""
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    evidence: onnxruntime.InferenceSession
    claim: onnxruntime.InferenceSession
    inputs: list[str]
    chooses: bool
    """Whether the claim graph has an input that selects the windows for each row. If it has none, the graph always
    returns one row for each window and one row for all windows together."""
    tokenizer: Tokenizer
    encode: Callable[[str], Tokens]
    cls: int
    sep: int
    labels: LabelMapping
    window_tokens: int
    claim_tokens: int
    digest: str


class CachedEvidenceScorer:
    """Scores pairs with the model in a folder that contains ``evidence.onnx``, ``claim.onnx``, their weights,
    ``tokenizer.json``, ``config.json`` and ``SHA256SUMS``. The checksums are verified before anything is loaded.

    Evidence longer than a window is read as several windows. A claim longer than the model's limit is truncated and
    counted in ``pairs_cut``, and a warning is logged.

    Args:
        folder: the model's folder.
        threads: maximum number of concurrent inferences, each on one core; 0 means one per core that the process may
            use.
        label: the name in reports. Defaults to ``onnx:`` followed by the folder's name.
        states_bytes: memory limit for window states; the most recently used ones are kept.
        separately: also score each part of ``EvidenceWindows``. If False, a claim is read only against all of them
            together, which takes a fraction of the time.
        pool: the threads to use, instead of new ones.
    """

    fuses = True

    def __init__(
        self,
        folder: Path | str,
        *,
        threads: int = 0,
        label: str | None = None,
        states_bytes: int = _STATES_BYTES,
        separately: bool = True,
        pool: JudgeThreadPool | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._label = label or f"onnx:{self._folder.name}"
        self._model: _Model | None = None
        self._loading = asyncio.Lock()
        self.concurrency = threads or cores()
        """Number of ``score`` calls that run in parallel."""
        self._threads = pool or JudgeThreadPool(self.concurrency)
        self._separately = separately
        self._states_bytes = states_bytes
        self._states: OrderedDict[bytes, States] = OrderedDict()
        self._encoding: dict[bytes, asyncio.Future[States]] = {}
        self.cached_bytes = 0
        """Size of the cached states in bytes."""
        self.windows_encoded = 0
        """Number of windows encoded so far."""
        self.pairs_cut = 0

    @property
    def name(self) -> str:
        """The label and, once loaded, the first digits of the weights' SHA-256."""
        return self._label if self._model is None else f"{self._label}@{self._model.digest[:8]}"

    @property
    def tokenizer_json(self) -> bytes:
        """The tokenizer that counts tokens, in the format of ``tokenizer.json``."""
        return (self._folder / "tokenizer.json").read_bytes()

    @property
    def max_tokens(self) -> int:
        model = self._loaded()
        return model.window_tokens + model.claim_tokens

    def count_tokens(self, text: str) -> int:
        encode = self._loaded().encode
        return sum(len(encode(part)) for part in text.parts) if isinstance(text, EvidenceWindows) else len(encode(text))

    def tokens(self, text: str) -> Tokens:
        """Return the token ids of ``text``, without special tokens. Raises JudgeUnavailableError before ``start``."""
        return self._loaded().encode(text)

    async def start(self) -> None:
        async with self._loading:
            if self._model is None:
                self._model = await self._in_worker(self._load)

    async def aclose(self) -> None:
        """Wait a few seconds for running inferences, then release the model. The scorer cannot be restarted."""
        await self._threads.aclose()
        self._model = None
        self._states.clear()
        self.cached_bytes = 0

    async def prefill(self, texts: Sequence[str]) -> None:
        """Encode evidence before a claim needs it. Raises JudgeError."""
        model = self._loaded()
        # At low priority, because clients are waiting for claims in other requests.
        windows = [window for text in texts for part in _parts(model, text) for window in part]
        await self._states_of(model, windows, self._threads.low_priority)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        """Score (evidence, claim) pairs, in order. Evidence that is ``EvidenceWindows`` is also scored part by part, in
        the same pass. Raises JudgeError.

        Each pair is run separately. In a batch, its scores would depend on the other pairs, because a quantised layer
        scales its inputs by the largest value in the batch.
        """
        model = self._loaded()
        queries = [_Query(_parts(model, evidence), self._claim(model, claim)) for evidence, claim in pairs]
        windows = [window for query in queries for window in query.windows]
        states = await self._states_of(model, windows, self._threads)
        return await self._in_worker(self._score_queries, model, queries, states) if queries else []

    def _claim(self, model: _Model, text: str) -> Tokens:
        claim = model.encode(text)
        if len(claim) > model.claim_tokens:
            self.pairs_cut += 1
            log.warning("a claim was truncated to %d tokens, the limit of %s", model.claim_tokens, self._label)
        return claim[: model.claim_tokens]

    async def _states_of(self, model: _Model, windows: Sequence[Tokens], threads: Executor) -> dict[Tokens, States]:
        """Return the states of ``windows``, from the cache or computed now. Concurrent callers never compute the same
        state twice."""
        found: dict[Tokens, States] = {}
        awaited: dict[Tokens, asyncio.Future[States]] = {}
        for window in dict.fromkeys(windows):
            key = _key(window)
            if (states := self._states.get(key)) is not None:
                self._states.move_to_end(key)
                found[window] = states
            else:
                awaited[window] = self._encoding.get(key) or self._start_encoding(model, key, window, threads)
        for window, future in awaited.items():
            found[window] = await asyncio.shield(future)
        return found

    def _start_encoding(self, model: _Model, key: bytes, window: Tokens, threads: Executor) -> "asyncio.Future[States]":
        future: asyncio.Future[States] = self._submit(threads, self._encode_window, model, window)
        self._encoding[key] = future
        self.windows_encoded += 1

        def store(done: "asyncio.Future[States]") -> None:
            del self._encoding[key]
            if not done.cancelled() and done.exception() is None:
                self._store(key, done.result())

        future.add_done_callback(store)
        return future

    def _store(self, key: bytes, states: States) -> None:
        self._states[key] = states
        self.cached_bytes += _nbytes(states)
        while self.cached_bytes > self._states_bytes and len(self._states) > 1:
            self.cached_bytes -= _nbytes(self._states.popitem(last=False)[1])

    def _encode_window(self, model: _Model, window: Tokens) -> States:
        return tuple(self._run(model.evidence, {"ids": np.array([[*window, model.sep]], dtype=np.int64)}))

    def _score_queries(
        self, model: _Model, queries: Sequence["_Query"], states: Mapping[Tokens, States]
    ) -> list[Probabilities]:
        found: list[Probabilities] = []
        for query in queries:
            cached = [states[window] for window in query.windows]
            lengths = [window[0].shape[3] for window in cached]
            stacked = chain.from_iterable(_stack(kind, lengths) for kind in zip(*cached, strict=True))
            feeds = dict(zip(model.inputs, stacked, strict=True))
            feeds["ids"] = np.array([[model.cls, *query.claim, model.sep]], dtype=np.int64)
            feeds["present"] = _mask(lengths)
            if model.chooses:
                feeds[_READS] = _reads(len(lengths), separately=self._separately)
            (logits,) = self._run(model.claim, feeds)
            if not np.isfinite(logits).all():
                raise JudgeError(f"{self._label}: the model's output is not finite")
            rows = model.labels.probabilities(logits)
            found.append(replace(rows[-1], parts=query.of_parts(rows) if self._separately else ()))
        return found

    def _run(self, session: onnxruntime.InferenceSession, feeds: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        try:
            return list(session.run(None, feeds))
        except Exception as error:  # ONNX Runtime's errors have no other common base class.
            raise JudgeError(f"{self._label}: inference failed: {error}") from error

    async def _in_worker(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._submit(self._threads, function, *arguments)

    def _submit(self, threads: Executor, function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        try:
            return asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
        except RuntimeError as error:
            raise JudgeUnavailableError(f"{self.name} is closed") from error

    def _loaded(self) -> _Model:
        if self._model is None:
            raise JudgeUnavailableError(f"{self._label} is not loaded")
        return self._model

    def _load(self) -> _Model:
        folder = self._folder
        try:
            verify_checksums(folder, needed=(EVIDENCE_GRAPH, _CLAIM_GRAPH, _WEIGHTS, "tokenizer.json", "config.json"))
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            evidence, claim = (
                onnxruntime.InferenceSession(str(folder / name), _options(), providers=["CPUExecutionProvider"])
                for name in (EVIDENCE_GRAPH, _CLAIM_GRAPH)
            )
            names = [one.name for one in claim.get_inputs()]
            return _Model(
                evidence=evidence,
                claim=claim,
                inputs=[name for name in names if name not in ("ids", "present", _READS)],
                chooses=_READS in names,
                tokenizer=tokenizer,
                encode=lru_cache(maxsize=4096)(lambda text: _encode(tokenizer, text)),
                cls=_special(tokenizer, "[CLS]"),
                sep=_special(tokenizer, "[SEP]"),
                labels=read_label_mapping(config["id2label"], size=claim.get_outputs()[0].shape[-1]),
                window_tokens=int(config["window_tokens"]),
                claim_tokens=int(config["claim_tokens"]) - _SPECIALS_OF_CLAIM,
                digest=sha256_of(folder / _WEIGHTS),
            )
        except JudgeUnavailableError:
            raise
        except Exception as error:  # Neither tokenizers nor ONNX Runtime has a common base class for its errors.
            raise JudgeUnavailableError(f"cannot load {self._label} from {folder}: {error}") from error


def _options() -> onnxruntime.SessionOptions:
    """Build session options with one core per inference, because several inferences run in parallel. ONNX Runtime's
    memory arena is disabled, so that inferences return their memory (100 MB for two encoders). They are no slower
    without it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    return options


def _special(tokenizer: Tokenizer, token: str) -> int:
    place = tokenizer.token_to_id(token)
    if place is None:
        raise ValueError(f"the tokenizer has no {token}")
    return place


def _encode(tokenizer: Tokenizer, text: str) -> Tokens:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


@dataclass(frozen=True, slots=True)
class _Query:
    """A claim and the parts of its evidence. Each part has one or more windows."""

    parts: Sequence[Sequence[Tokens]]
    claim: Tokens

    @property
    def windows(self) -> Sequence[Tokens]:
        return [window for part in self.parts for window in part]

    def of_parts(self, rows: Sequence[Probabilities]) -> tuple[Probabilities, ...]:
        """Return the scores of each part. If a part has several windows, the window with the highest entailment
        counts."""
        if len(self.parts) == 1:
            return ()
        ends = list(accumulate(len(part) for part in self.parts))
        return tuple(
            max(rows[end - len(part) : end], key=lambda row: row.entailed)
            for part, end in zip(self.parts, ends, strict=True)
        )


def _parts(model: _Model, text: str) -> list[list[Tokens]]:
    """Split each part of ``text`` into windows."""
    return [_cut(model, part) for part in (text.parts if isinstance(text, EvidenceWindows) else (text,))]


def _cut(model: _Model, text: str) -> list[Tokens]:
    tokens = model.encode(text)
    size = model.window_tokens
    return [tokens[start : start + size] for start in range(0, max(1, len(tokens)), size)]


def _stack(windows: Sequence[Half], lengths: Sequence[int]) -> Half:
    """Stack several windows' keys or values, padded with zeros, to the shape (layers, heads, windows, tokens, size)."""
    layers, heads, _, _, size = windows[0].shape
    stacked = np.empty((layers, heads, len(windows), max(lengths), size), dtype=np.float16)
    for place, (window, length) in enumerate(zip(windows, lengths, strict=True)):
        stacked[:, :, place, :length] = window[:, :, 0]
        stacked[:, :, place, length:] = 0
    return stacked


def _reads(windows: int, *, separately: bool) -> npt.NDArray[np.float32]:
    """Build the matrix that selects the windows for each row. The last row selects all windows. With ``separately``,
    the rows before it select one window each."""
    together = np.ones((1, windows), dtype=np.float32)
    return np.concatenate([np.eye(windows, dtype=np.float32), together]) if separately else together


def _mask(lengths: Sequence[int]) -> npt.NDArray[np.float32]:
    """Build the mask of shape (windows, tokens), with 1 for tokens and 0 for padding."""
    return (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.float32)


def _nbytes(states: States) -> int:
    return sum(one.nbytes for one in states)


def _key(window: Tokens) -> bytes:
    return blake2b(np.array(window, dtype=np.int32).tobytes(), digest_size=16).digest()
