"""Runs presets in this process, with torch and transformers."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from judges.cross_encoder.judge_spec import split_list
from judges.cross_encoder.presets.local_model import LocalModel
from judges.cross_encoder.presets.model_source import ModelSource
from judges.cross_encoder.presets.pair_classifier import load_pair_classifier
from judges.cross_encoder.presets.preset_table import Preset
from judges.cross_encoder.presets.t5 import load_first_token_classifier, load_token_chooser
from judges.cross_encoder.presets.token_classifier import load_token_classifier
from judges.cross_encoder.threaded_scorer import ThreadedScorer
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import Probabilities

log = logging.getLogger(__name__)

_LOADERS: Final[Mapping[str, Callable[[ModelSource], LocalModel]]] = {
    "pairs": load_pair_classifier,
    "t5-first": load_first_token_classifier,
    "t5-token": load_token_chooser,
    "tokens": load_token_classifier,
}
LOCAL_KINDS: Final = frozenset(_LOADERS)
"""The kinds of presets that run in this process."""

_BATCH_PAIRS: Final = 32
_BATCH_TOKENS: Final = 1024
_GPU_BATCH_TOKENS: Final = 16_384
_CACHE_SIZE: Final = 4096
_REVISION_DIGITS: Final = 8
_BFLOAT16_SINCE: Final = 8
"""The compute capability of Ampere, the first generation of CUDA GPUs that supports bfloat16."""
_DTYPES: Final = ("float32", "float16", "bfloat16")


class LocalScorer(ThreadedScorer):
    """Scores pairs with a preset's model, on a GPU in half precision if there is one.

    Needs the extra ``groundlane[sentence-transformers]``; ``start`` raises JudgeUnavailableError without it. A pair
    that exceeds the model's limit is shortened and counted in ``pairs_cut``, and a warning is logged.

    Args:
        preset: the preset to load. Its kind must be one of ``LOCAL_KINDS``.
        options: ``model`` (a Hub id or folder that replaces the preset's), ``base`` (likewise for the base model),
            ``revision`` (the model's revision on the Hub), ``device`` (a torch device), ``dtype`` (float32, float16 or
            bfloat16), ``languages`` (two-letter codes), ``trust_remote_code`` (true or false). Raises ValueError for an
            invalid value.
        threads: number of torch threads for the whole process; 0 means torch's default of one per core.
    """

    def __init__(self, preset: Preset, options: Mapping[str, str], *, threads: int = 0) -> None:
        super().__init__("judge-preset")
        self._preset = preset
        self._options = options
        self._thread_count = threads
        self._trust = _choice(options, "trust_remote_code", ("true", "false")) == "true"
        self._dtype = _choice(options, "dtype", _DTYPES)
        self._model: LocalModel | None = None
        self._device = "cpu"
        self._commit = ""
        self._count = lru_cache(maxsize=_CACHE_SIZE)(self._count_now)
        given = split_list(options["languages"]) if "languages" in options else preset.languages
        self.languages: frozenset[str] | None = frozenset(given) or None
        """Codes of the languages that the model supports; None means all, or unknown."""
        self.threshold = preset.threshold
        """The P(entailed) at which the model's authors call a claim supported."""
        self.windowing = preset.windowing
        """How evidence is cut for the model; None means the default."""

    @property
    def name(self) -> str:
        """The preset's name, followed by the name of the model that replaces the preset's model (if any). Once the
        model is loaded, the start of its revision is appended.
        """
        given = self._options.get("model")
        replaced = f"({Path(given).name})" if given else ""
        return f"preset:{self._preset.name}{replaced}" + (f"@{self._commit}" if self._commit else "")

    @property
    def max_tokens(self) -> int:
        return self._loaded().max_tokens

    @property
    def batch_tokens(self) -> int:
        """Maximum number of tokens in a batch, including padding. Large batches are faster on a GPU, but not on a
        CPU."""
        return _BATCH_TOKENS if self._device == "cpu" else _GPU_BATCH_TOKENS

    @property
    def pairs_cut(self) -> int:
        """The number of pairs shortened so far."""
        return 0 if self._model is None else self._model.pairs_cut

    @property
    def tokenizer_json(self) -> bytes:
        """The tokenizer that counts tokens, in the format of ``tokenizer.json``."""
        content: str = self._loaded().tokenizer.backend_tokenizer.to_str()
        return content.encode()

    def count_tokens(self, text: str) -> int:
        return self._count(text)

    def _count_now(self, text: str) -> int:
        tokenizer = self._loaded().tokenizer
        return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _loaded(self) -> LocalModel:
        if self._model is None:
            raise JudgeUnavailableError(f"{self.name} is not loaded")
        return self._model

    def _load(self) -> None:
        try:
            import torch
            from transformers.utils.logging import disable_progress_bar
        except ImportError as error:
            raise JudgeUnavailableError(
                f"{self.name} needs an extra: pip install 'groundlane[{self._preset.extra}]'"
            ) from error
        # Loading is quick, so its progress bar would only clutter the log. The progress bars for downloads stay.
        disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        if self._thread_count:
            torch.set_num_threads(self._thread_count)
        self._device = self._options.get("device") or best_device(torch)
        _check_device(torch, self.name, self._device)
        source = ModelSource(
            preset=self._preset,
            model=self._options.get("model", self._preset.model),
            base=self._options.get("base", self._preset.base),
            device=self._device,
            dtype=self._dtype or best_dtype(torch, self._device),
            revision=self._options.get("revision"),
            trust_remote_code=self._trust,
        )
        try:
            source.check_folders()
            self._model = _LOADERS[self._preset.kind](source)
        except JudgeUnavailableError as error:
            raise JudgeUnavailableError(f"{self.name}: {error}") from error
        except Exception as error:  # Any error from the Hub, the files or the libraries.
            raise JudgeUnavailableError(f"cannot load {self.name}: {_first_line(error)}{source.hint}") from error
        self._commit = (self._model.revision or "")[:_REVISION_DIGITS]

    def _unload(self) -> None:
        self._model = None

    def _predict(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        model = self._loaded()
        before = model.pairs_cut
        scores: dict[int, Probabilities] = {}
        try:
            for places in self._batches(pairs):
                scores |= zip(places, model.score([pairs[place] for place in places]), strict=True)
        except Exception as error:  # Any error from torch.
            raise JudgeError(f"{self.name}: prediction failed: {_first_line(error)}") from error
        if cut := model.pairs_cut - before:
            log.warning(
                "%d of %d pairs were shortened to %d tokens, the limit of %s",
                cut,
                len(pairs),
                model.max_tokens,
                self.name,
            )
        return [scores[place] for place in range(len(pairs))]

    def _batches(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Sequence[int]]:
        """Yield batches of the positions of pairs of similar length, to keep padding small."""
        lengths = [self._count(evidence) + self._count(claim) for evidence, claim in pairs]
        batch: list[int] = []
        for place in sorted(range(len(pairs)), key=lengths.__getitem__):
            if batch and (len(batch) == _BATCH_PAIRS or (len(batch) + 1) * lengths[place] > self.batch_tokens):
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch


def best_device(torch: Any) -> str:
    """Return the default device: a GPU if there is one."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def best_dtype(torch: Any, device: str) -> str:
    """Return the default precision on ``device``: bfloat16 on a CUDA GPU that supports it, because it has the range of
    single precision. In float16, the activations of T5 can overflow.
    """
    if not device.startswith("cuda"):
        return "float32"
    major, _ = torch.cuda.get_device_capability(device)
    return "bfloat16" if major >= _BFLOAT16_SINCE else "float32"


def _check_device(torch: Any, name: str, device: str) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise JudgeUnavailableError(
            f"{name}: torch finds no CUDA GPU for device={device}; "
            "use device=cpu, or install a build of torch for your GPU"
        )


def _choice(options: Mapping[str, str], name: str, known: Sequence[str]) -> str | None:
    """Return the value of the option ``name``, or None if it isn't given. Raises ValueError if the value isn't one of
    ``known``."""
    value = options.get(name)
    if value is not None and value not in known:
        raise ValueError(f"judge: {name}={value!r}: expected {' or '.join(known)}")
    return value


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's type if it has no message. Messages from transformers
    are long."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
