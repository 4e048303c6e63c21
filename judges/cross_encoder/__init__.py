"""Cross-encoders: one back end a file, chosen by a short text such as ``embedded`` or ``onnx:<folder>``."""

from collections.abc import Callable
from pathlib import Path

from judges import embedded
from judges.base import PairScorer
from judges.cross_encoder.onnx import OnnxScorer
from judges.cross_encoder.sentence_transformers import SentenceTransformersScorer

__all__ = ["OnnxScorer", "SentenceTransformersScorer", "open_scorer"]


def _onnx(path: str, threads: int) -> PairScorer:
    return OnnxScorer(Path(path).expanduser(), threads=threads)


def _sentence_transformers(model: str, threads: int) -> PairScorer:
    return SentenceTransformersScorer(model)


_BACK_ENDS: dict[str, Callable[[str, int], PairScorer]] = {
    "onnx": _onnx,
    "st": _sentence_transformers,
}
_EXPECTED = "expected 'embedded', 'onnx:<folder>', 'st:<hub id or path>' or 'none'"


def open_scorer(spec: str, *, threads: int = 0) -> PairScorer | None:
    """Make the cross-encoder that ``spec`` names, not loaded yet; None for ``none``.

    ``threads`` of one inference, 0 for one per core (ONNX back ends). Raises ValueError for a text it does not know.
    """
    kind, colon, rest = spec.strip().partition(":")
    if not colon and kind == "none":
        return None
    if not colon and kind == "embedded":
        return OnnxScorer(embedded.FOLDER, threads=threads, label="embedded")
    if kind in ("http", "https"):
        raise ValueError(f"judge {spec!r}: a remote judge is not supported yet; {_EXPECTED}")
    if kind not in _BACK_ENDS or not rest:
        raise ValueError(f"judge {spec!r}: {_EXPECTED}")
    return _BACK_ENDS[kind](rest, threads)
