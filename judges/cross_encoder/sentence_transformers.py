"""Any cross-encoder that ``sentence_transformers`` can load, from the Hugging Face Hub or a folder."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

from judges.cross_encoder.label_mapping import LabelMapping, read_label_mapping
from judges.cross_encoder.model_files import CONFIG, check_folder
from judges.cross_encoder.model_metadata import known_languages, warn_if_reranker
from judges.cross_encoder.threaded_scorer import ThreadedScorer
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import Probabilities

Backend = Literal["torch", "onnx", "openvino"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)

_DEFAULT_LIMIT = 512
_UNLIMITED = 1_000_000
_CACHE_SIZE = 4096


class SentenceTransformersScorer(ThreadedScorer):
    """Scores pairs with ``sentence_transformers.CrossEncoder`` on its torch, ONNX or OpenVINO back end.

    The labels in the config determine how the outputs of three-way NLI models and single-logit models are interpreted.
    A model that looks like a re-ranker is loaded, but a warning is logged. Needs the extra
    ``groundlane[sentence-transformers]`` and, for ONNX and OpenVINO, the packages that sentence-transformers requires
    for them. ``start`` raises JudgeUnavailableError if they are missing.

    Args:
        model: Hub id or path.
        backend: the back end of sentence-transformers.
        batch_size: number of pairs in a batch.
        device: torch device, such as ``cpu`` or ``cuda:1``. Defaults to a GPU if there is one.
        languages: codes of the languages that the model supports. Defaults to those in the model's
            config, or to all languages if the config lists none.
    """

    def __init__(
        self,
        model: str,
        *,
        backend: Backend = "torch",
        batch_size: int = 32,
        device: str | None = None,
        languages: frozenset[str] | None = None,
    ) -> None:
        super().__init__("judge-st")
        self._id = model
        self._backend = backend
        self._batch_size = batch_size
        self._device = device
        self._model: Any = None
        self.languages = languages
        """Codes of the languages that the model supports; None means all, or unknown."""
        self._labels = LabelMapping(size=1)
        self._limit = 0
        self._count = lru_cache(maxsize=_CACHE_SIZE)(self._count_now)

    @property
    def name(self) -> str:
        return f"st:{self._id}"

    @property
    def max_tokens(self) -> int:
        self._require_ready()
        return self._limit

    def count_tokens(self, text: str) -> int:
        return self._count(text)

    def _count_now(self, text: str) -> int:
        self._require_ready()
        return len(self._model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _load(self) -> None:
        try:
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise JudgeUnavailableError(
                f"{self.name} needs an extra: pip install 'groundlane[sentence-transformers]'"
            ) from error
        try:
            # Pickled weights can run code when they are loaded; ``use_safetensors`` rejects them.
            options = {"use_safetensors": True} if self._backend == "torch" else {}
            check_folder(self._id, needed=CONFIG)
            model = CrossEncoder(self._id, backend=self._backend, device=self._device, model_kwargs=options)
        except Exception as error:  # Any error from the Hub, the files or the back end.
            raise JudgeUnavailableError(f"cannot load {self.name}: {error}") from error
        self._labels = read_label_mapping(model.config.id2label, size=model.num_labels)
        warn_if_reranker(self._id, model.config.id2label.values(), size=model.num_labels, folder=Path(self._id))
        self.languages = self.languages or known_languages(vars(model.config))
        self._limit = _limit(model) - model.tokenizer.num_special_tokens_to_add(pair=True)
        self._model = model

    def _unload(self) -> None:
        self._model = None

    def _predict(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        try:
            logits = self._model.predict(
                list(pairs),
                batch_size=self._batch_size,
                activation_fn=_identity,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        except Exception as error:  # Any error from the back end.
            raise JudgeError(f"{self.name}: prediction failed: {error}") from error
        return self._labels.probabilities(logits)


def _limit(model: Any) -> int:
    # Renamed within the supported versions; the old name still works, but causes a warning.
    longest = model.max_seq_length if hasattr(model, "max_seq_length") else model.max_length
    limits = (longest, model.tokenizer.model_max_length)
    known = [limit for limit in limits if isinstance(limit, int) and limit < _UNLIMITED]
    return min(known, default=getattr(model.config, "max_position_embeddings", _DEFAULT_LIMIT))


def _identity(logits: Any) -> Any:
    """Return the logits unchanged, because the label mapping applies the activation."""
    return logits
