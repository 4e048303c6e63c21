"""Cross-encoders: one back end a file, chosen by a short text such as ``embedded`` or ``onnx:<folder>``."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from judges import embedded
from judges.base import PairScorer
from judges.cross_encoder.description import folder_languages
from judges.cross_encoder.http import HttpScorer
from judges.cross_encoder.onnx import OnnxScorer
from judges.cross_encoder.prefix import EVIDENCE_GRAPH, PrefixScorer
from judges.cross_encoder.sentence_transformers import BACKENDS, SentenceTransformersScorer
from judges.cross_encoder.spec import Spec, parse_spec

__all__ = ["HttpScorer", "OnnxScorer", "PrefixScorer", "SentenceTransformersScorer", "open_scorer", "spec_languages"]


def open_scorer(spec: str, *, threads: int = 0, api_key: str | None = None) -> PairScorer | None:
    """Make the cross-encoder that ``spec`` names, not loaded yet; None for ``none``.

    ``threads`` of one inference, 0 for one per core (ONNX back ends); ``api_key`` for one that is served elsewhere.
    Raises ValueError for a text that it does not know.
    """
    parsed = parse_spec(spec)
    opener = _OPENERS.get(parsed.kind)
    return None if opener is None else opener(parsed, threads, api_key)


def spec_languages(spec: str) -> frozenset[str] | None:
    """The languages that the model of ``spec`` knows, by its option or by the config in its folder, by two-letter code;
    None for all, or where only the model once loaded can say. Raises ValueError for a text that it does not know."""
    parsed = parse_spec(spec)
    if parsed.languages is None and (folder := _folder_of(parsed)) is not None:
        return folder_languages(folder)
    return parsed.languages


def _folder_of(spec: Spec) -> Path | None:
    match spec.kind:
        case "embedded":
            return embedded.FOLDER
        case "onnx":
            return Path(spec.what).expanduser()
        case _:
            return None


def _open_folder(spec: Spec, threads: int, _: str | None) -> PairScorer:
    folder = _folder_of(spec) or embedded.FOLDER
    kind = PrefixScorer if (folder / EVIDENCE_GRAPH).is_file() else OnnxScorer
    return kind(folder, threads=threads, label="embedded" if spec.kind == "embedded" else None)


def _open_sentence_transformers(spec: Spec, _: int, __: str | None) -> PairScorer:
    named = spec.options.get("backend", "torch")
    backend = next((one for one in BACKENDS if one == named), None)
    if backend is None:
        raise ValueError(f"judge: backend is one of {', '.join(BACKENDS)}, not {named!r}")
    return SentenceTransformersScorer(spec.what, backend=backend, languages=spec.languages)


def _open_http(spec: Spec, _: int, api_key: str | None) -> PairScorer:
    return HttpScorer(spec.what, options=spec.options, api_key=api_key)


_OPENERS: Final[dict[str, Callable[[Spec, int, str | None], PairScorer]]] = {
    "embedded": _open_folder,
    "onnx": _open_folder,
    "st": _open_sentence_transformers,
    "http": _open_http,
}
