"""A cross-encoder exported to ONNX, run by ONNX Runtime on the CPU."""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
from tokenizers import Tokenizer

from judges.cross_encoder.label_mapping import LabelMapping, read_label_mapping
from judges.cross_encoder.model_files import cores, sha256_of, verify_checksums
from judges.cross_encoder.model_metadata import warn_if_reranker
from judges.cross_encoder.threaded_scorer import JudgeThreadPool
from judges.cross_encoder.tokenization import PairEncoder, read_limit
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import Probabilities

log = logging.getLogger(__name__)

_MODEL_FILES = (
    "model_int8.onnx",
    "model_quantized.onnx",
    "model.onnx",
    "onnx/model_int8.onnx",
    "onnx/model_quantized.onnx",
    "onnx/model.onnx",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    session: onnxruntime.InferenceSession
    inputs: frozenset[str]
    encoder: PairEncoder
    labels: LabelMapping
    digest: str


class OnnxScorer:
    """Scores pairs with the model in a folder that contains ``*.onnx``, ``tokenizer.json`` and ``config.json``, as
    exported by Optimum and other tools.

    The logits are ordered as in the config's ``id2label``; a single logit is the log-odds of entailment. If the folder
    has a ``SHA256SUMS``, its files are verified before they are loaded.

    ``count_tokens`` and ``max_tokens`` raise JudgeUnavailableError before ``start``. A pair longer than ``max_tokens``
    is truncated (the claim first) and counted in ``pairs_cut``, and a warning is logged.

    Args:
        folder: the model's folder.
        threads: number of threads per inference; 0 means one per core that the process may use.
        workers: maximum number of concurrent inferences.
        max_length: maximum input length in tokens, including special tokens. Defaults to the model's own limit.
        label: the name in reports. Defaults to ``onnx:`` followed by the folder's name.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        threads: int = 0,
        workers: int = 1,
        max_length: int | None = None,
        label: str | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._threads = threads or cores()
        self._max_length = max_length
        self._label = label or f"onnx:{self._folder.name}"
        self._model: _Model | None = None
        self._loading = asyncio.Lock()
        self._executor = JudgeThreadPool(workers)
        self.pairs_cut = 0

    @property
    def name(self) -> str:
        """The label and, once loaded, the first digits of the model file's SHA-256."""
        return self._label if self._model is None else f"{self._label}@{self._model.digest[:8]}"

    @property
    def tokenizer_json(self) -> bytes:
        """The tokenizer that counts tokens, in the format of ``tokenizer.json``."""
        return (self._folder / "tokenizer.json").read_bytes()

    @property
    def max_tokens(self) -> int:
        return self._loaded().encoder.max_tokens

    def count_tokens(self, text: str) -> int:
        return self._loaded().encoder.count(text)

    async def start(self) -> None:
        async with self._loading:
            if self._model is None:
                self._model = await self._in_worker(self._load)

    async def aclose(self) -> None:
        """Wait a few seconds for running inferences, then release the model. The scorer cannot be restarted."""
        await self._executor.aclose()
        self._model = None

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        model = self._loaded()
        return await self._in_worker(self._infer, model, pairs) if pairs else []

    async def _in_worker(self, function: Any, *arguments: Any) -> Any:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        except RuntimeError as error:
            raise JudgeUnavailableError(f"{self.name} is closed") from error
        return await future

    def _loaded(self) -> _Model:
        if self._model is None:
            raise JudgeUnavailableError(f"{self._label} is not loaded")
        return self._model

    def _infer(self, model: _Model, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        if cut := sum(not model.encoder.fits(*pair) for pair in pairs):
            self.pairs_cut += cut
            log.warning(
                "%d of %d pairs were truncated to %d tokens, the limit of %s",
                cut,
                len(pairs),
                model.encoder.max_tokens,
                self._label,
            )
        inputs = {name: ids for name, ids in model.encoder.batch(pairs).items() if name in model.inputs}
        try:
            logits = model.session.run(None, inputs)[0]
        except Exception as error:  # ONNX Runtime's errors have no other common base class.
            raise JudgeError(f"{self._label}: inference failed: {error}") from error
        return model.labels.probabilities(logits)

    def _load(self) -> _Model:
        try:
            verify_checksums(self._folder)
            file = _model_file(self._folder)
            config = json.loads((self._folder / "config.json").read_text(encoding="utf-8"))
            tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
            limit = self._max_length or read_limit(self._folder, tokenizer, config)
            session = onnxruntime.InferenceSession(str(file), self._options(), providers=["CPUExecutionProvider"])
        except JudgeUnavailableError:
            raise
        except Exception as error:  # Neither tokenizers nor ONNX Runtime has a common base class for its errors.
            raise JudgeUnavailableError(f"cannot load {self._label} from {self._folder}: {error}") from error
        width = session.get_outputs()[0].shape[-1]
        names = config.get("id2label", {})
        labels = read_label_mapping(names, size=width if isinstance(width, int) else None)
        warn_if_reranker(self._label, names.values(), size=width, folder=self._folder)
        return _Model(
            session=session,
            inputs=frozenset(one.name for one in session.get_inputs()),
            encoder=PairEncoder(tokenizer, limit=limit, pad_id=config.get("pad_token_id") or 0),
            labels=labels,
            digest=sha256_of(file),
        )

    def _options(self) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        # Spinning threads would occupy the cores that the gateway needs between two inferences.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options


def _model_file(folder: Path) -> Path:
    named = [folder / name for name in _MODEL_FILES if (folder / name).is_file()]
    found = named or sorted(folder.glob("*.onnx"))
    if not found:
        raise JudgeUnavailableError(f"no .onnx file in {folder}")
    return found[0]
