"""The cross-encoder whose evidence does not see the claim: a window is read once and its states are kept.

Two graphs (``judges.training.export`` writes them): one gives a window's keys and values in every layer, the other
reads a claim against those of several windows, each by itself and all together, in one pass. A claim then costs its own
tokens alone, so that a sentence is checked in a fraction of the time that a plain cross-encoder takes.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime
from tokenizers import Tokenizer

from judges.cross_encoder.labels import Labels, read_labels
from judges.cross_encoder.model_files import cores, digest_of, verify
from judges.cross_encoder.thread_pool import JudgeThreads
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import Probabilities, Windows

log = logging.getLogger(__name__)

EVIDENCE_GRAPH: Final = "evidence.onnx"
"""The file by which a folder of this kind is known."""
_CLAIM_GRAPH: Final = "claim.onnx"
_WEIGHTS: Final = "weights.bin"
_SPECIALS_OF_CLAIM: Final = 2

_STATES_BYTES: Final = 128 * 1024 * 1024
"""Some 160 windows, which are the documents of 16 replies of five each: what a reply is still judged by must not go for
what the next one brings."""

Half = npt.NDArray[np.float16]
States = tuple[Half, ...]
"""A window's keys and values, each as (layers, heads, 1, tokens, size)."""
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    evidence: onnxruntime.InferenceSession
    claim: onnxruntime.InferenceSession
    inputs: list[str]
    tokenizer: Tokenizer
    encode: Callable[[str], Tokens]
    cls: int
    sep: int
    labels: Labels
    window_tokens: int
    claim_tokens: int
    digest: str


class PrefixScorer:
    """A folder with ``evidence.onnx``, ``claim.onnx``, their weights, ``tokenizer.json``, ``config.json`` and
    ``SHA256SUMS``, which is checked before anything is loaded.

    ``threads``: inferences at once, each on one core; 0 for one per core that the process may use. ``states_bytes``
    bounds what is kept of windows read; those used last stay. A text of more than a window's tokens is read as several
    windows. A claim of more than ``claim_tokens`` is cut, with a warning in the log, and counted in ``pairs_cut``.
    """

    fuses = True

    def __init__(
        self, folder: Path | str, *, threads: int = 0, label: str | None = None, states_bytes: int = _STATES_BYTES
    ) -> None:
        self._folder = Path(folder)
        self._label = label or f"onnx:{self._folder.name}"
        self._model: _Model | None = None
        self._loading = asyncio.Lock()
        self.concurrency = threads or cores()
        """How many calls of ``score`` run side by side."""
        self._threads = JudgeThreads(self.concurrency)
        self._states_bytes = states_bytes
        self._kept: OrderedDict[bytes, States] = OrderedDict()
        self._reading: dict[bytes, asyncio.Future[States]] = {}
        self.kept_bytes = 0
        """What the states kept take."""
        self.windows_read = 0
        """Windows that had to be read so far."""
        self.pairs_cut = 0

    @property
    def name(self) -> str:
        """The folder, and once loaded the first digits of the weights' SHA-256."""
        return self._label if self._model is None else f"{self._label}@{self._model.digest[:8]}"

    @property
    def tokenizer_file(self) -> Path:
        """What tokens are counted by."""
        return self._folder / "tokenizer.json"

    @property
    def max_tokens(self) -> int:
        model = self._loaded()
        return model.window_tokens + model.claim_tokens

    def count_tokens(self, text: str) -> int:
        encode = self._loaded().encode
        return sum(len(encode(part)) for part in text.parts) if isinstance(text, Windows) else len(encode(text))

    def tokens(self, text: str) -> Tokens:
        """The token ids of ``text``, special ones left out. Raises JudgeUnavailableError if nothing is loaded."""
        return self._loaded().encode(text)

    async def start(self) -> None:
        async with self._loading:
            if self._model is None:
                self._model = await self._in_worker(self._load)

    async def aclose(self) -> None:
        """Wait a while for the inference that runs and let the model go. It cannot be started again."""
        await self._threads.aclose()
        self._model = None
        self._kept.clear()
        self.kept_bytes = 0

    async def read(self, texts: Sequence[str]) -> None:
        """Read texts ahead of the claims about them. Raises JudgeError."""
        model = self._loaded()
        # Those of other requests, whose claims clients wait for, go first.
        windows = [window for text in texts for part in _parts(model, text) for window in part]
        await self._states_of(model, windows, self._threads.patient)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        """As ``PairScorer`` says. Evidence that is ``Windows`` is also judged part by part, in the same pass.

        Each pair is a pass of its own, so that what it gets does not depend on its company: the inputs of a quantised
        layer are scaled by the largest among all rows.
        """
        model = self._loaded()
        asked = [_Asked(_parts(model, evidence), self._claim(model, claim)) for evidence, claim in pairs]
        states = await self._states_of(model, [window for one in asked for window in one.windows], self._threads)
        return await self._in_worker(self._judge, model, asked, states) if asked else []

    def _claim(self, model: _Model, text: str) -> Tokens:
        claim = model.encode(text)
        if len(claim) > model.claim_tokens:
            self.pairs_cut += 1
            log.warning("a claim is over the %d tokens of %s and was cut", model.claim_tokens, self._label)
        return claim[: model.claim_tokens]

    async def _states_of(self, model: _Model, windows: Sequence[Tokens], threads: Executor) -> dict[Tokens, States]:
        """The states of ``windows``, kept ones or read now; a window that is being read is not read twice."""
        found: dict[Tokens, States] = {}
        awaited: dict[Tokens, asyncio.Future[States]] = {}
        for window in dict.fromkeys(windows):
            key = _key(window)
            if (states := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                found[window] = states
            else:
                awaited[window] = self._reading.get(key) or self._begin(model, key, window, threads)
        for window, future in awaited.items():
            found[window] = await asyncio.shield(future)
        return found

    def _begin(self, model: _Model, key: bytes, window: Tokens, threads: Executor) -> "asyncio.Future[States]":
        future: asyncio.Future[States] = self._submit(threads, self._read, model, window)
        self._reading[key] = future
        self.windows_read += 1

        def keep(done: "asyncio.Future[States]") -> None:
            del self._reading[key]
            if not done.cancelled() and done.exception() is None:
                self._keep(key, done.result())

        future.add_done_callback(keep)
        return future

    def _keep(self, key: bytes, states: States) -> None:
        self._kept[key] = states
        self.kept_bytes += _nbytes(states)
        while self.kept_bytes > self._states_bytes and len(self._kept) > 1:
            self.kept_bytes -= _nbytes(self._kept.popitem(last=False)[1])

    def _read(self, model: _Model, window: Tokens) -> States:
        return tuple(self._run(model.evidence, {"ids": np.array([[*window, model.sep]], dtype=np.int64)}))

    def _judge(self, model: _Model, asked: Sequence["_Asked"], states: Mapping[Tokens, States]) -> list[Probabilities]:
        found: list[Probabilities] = []
        for one in asked:
            mine = [states[window] for window in one.windows]
            lengths = [window[0].shape[3] for window in mine]
            stacked = chain.from_iterable(_stack(kind, lengths) for kind in zip(*mine, strict=True))
            feeds = dict(zip(model.inputs, stacked, strict=True))
            feeds["ids"] = np.array([[model.cls, *one.claim, model.sep]], dtype=np.int64)
            feeds["present"] = _present(lengths)
            (logits,) = self._run(model.claim, feeds)
            if not np.isfinite(logits).all():
                raise JudgeError(f"{self._label}: what the model says of a claim is no number")
            rows = model.labels.probabilities(logits)
            found.append(replace(rows[-1], parts=one.of_parts(rows)))
        return found

    def _run(self, session: onnxruntime.InferenceSession, feeds: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        try:
            return list(session.run(None, feeds))
        except Exception as error:  # ONNX Runtime's errors share no base but this
            raise JudgeError(f"{self._label}: inference failed: {error}") from error

    async def _in_worker(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._submit(self._threads, function, *arguments)

    def _submit(self, threads: Executor, function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        try:
            return asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
        except RuntimeError as error:
            raise JudgeUnavailableError(f"{self.name} was closed") from error

    def _loaded(self) -> _Model:
        if self._model is None:
            raise JudgeUnavailableError(f"{self._label} is not loaded")
        return self._model

    def _load(self) -> _Model:
        folder = self._folder
        try:
            verify(folder, needed=(EVIDENCE_GRAPH, _CLAIM_GRAPH, _WEIGHTS, "tokenizer.json", "config.json"))
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            evidence, claim = (
                onnxruntime.InferenceSession(str(folder / name), _options(), providers=["CPUExecutionProvider"])
                for name in (EVIDENCE_GRAPH, _CLAIM_GRAPH)
            )
            return _Model(
                evidence=evidence,
                claim=claim,
                inputs=[one.name for one in claim.get_inputs() if one.name not in ("ids", "present")],
                tokenizer=tokenizer,
                encode=lru_cache(maxsize=4096)(lambda text: _encode(tokenizer, text)),
                cls=_special(tokenizer, "[CLS]"),
                sep=_special(tokenizer, "[SEP]"),
                labels=read_labels(config["id2label"], size=claim.get_outputs()[0].shape[-1]),
                window_tokens=int(config["window_tokens"]),
                claim_tokens=int(config["claim_tokens"]) - _SPECIALS_OF_CLAIM,
                digest=digest_of(folder / _WEIGHTS),
            )
        except JudgeUnavailableError:
            raise
        except Exception as error:  # neither tokenizers nor ONNX Runtime has an error of its own
            raise JudgeUnavailableError(f"cannot load {self._label} from {folder}: {error}") from error


def _options() -> onnxruntime.SessionOptions:
    """One core an inference: several run at once, and none waits for another's threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return options


def _special(tokenizer: Tokenizer, token: str) -> int:
    place = tokenizer.token_to_id(token)
    if place is None:
        raise ValueError(f"the tokenizer has no {token}")
    return place


def _encode(tokenizer: Tokenizer, text: str) -> Tokens:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A claim and the parts of its evidence, each of them one window or, where it is longer, several."""

    parts: Sequence[Sequence[Tokens]]
    claim: Tokens

    @property
    def windows(self) -> Sequence[Tokens]:
        return [window for part in self.parts for window in part]

    def of_parts(self, rows: Sequence[Probabilities]) -> tuple[Probabilities, ...]:
        """Of each part by itself: of a long one, what its window says that entails the claim most."""
        if len(self.parts) == 1:
            return ()
        ends = list(accumulate(len(part) for part in self.parts))
        return tuple(
            max(rows[end - len(part) : end], key=lambda row: row.entailed)
            for part, end in zip(self.parts, ends, strict=True)
        )


def _parts(model: _Model, text: str) -> list[list[Tokens]]:
    """The parts of ``text``, each cut into windows."""
    return [_cut(model, part) for part in (text.parts if isinstance(text, Windows) else (text,))]


def _cut(model: _Model, text: str) -> list[Tokens]:
    tokens = model.encode(text)
    size = model.window_tokens
    return [tokens[start : start + size] for start in range(0, max(1, len(tokens)), size)]


def _stack(windows: Sequence[Half], lengths: Sequence[int]) -> Half:
    """Several windows' keys or values as (layers, heads, windows, tokens, size), padded with zeros to the longest."""
    layers, heads, _, _, size = windows[0].shape
    stacked = np.empty((layers, heads, len(windows), max(lengths), size), dtype=np.float16)
    for place, (window, length) in enumerate(zip(windows, lengths, strict=True)):
        stacked[:, :, place, :length] = window[:, :, 0]
        stacked[:, :, place, length:] = 0
    return stacked


def _present(lengths: Sequence[int]) -> npt.NDArray[np.float32]:
    """(windows, tokens), 1 for each token that is there."""
    return (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.float32)


def _nbytes(states: States) -> int:
    return sum(one.nbytes for one in states)


def _key(window: Tokens) -> bytes:
    return blake2b(np.array(window, dtype=np.int32).tobytes(), digest_size=16).digest()
