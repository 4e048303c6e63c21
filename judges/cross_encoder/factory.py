"""Creates the cross-encoder for a spec such as ``embedded`` or ``onnx:<folder>``."""

from pathlib import Path

from judges import embedded
from judges.cross_encoder.cached_evidence import EVIDENCE_GRAPH, CachedEvidenceScorer
from judges.cross_encoder.judge_spec import JudgeSpec, parse_spec
from judges.cross_encoder.model_metadata import folder_languages
from judges.cross_encoder.onnx import OnnxScorer
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.cross_encoder.sentence_transformers import BACKENDS, SentenceTransformersScorer
from judges.protocols import PairScorer


def open_scorer(
    spec: str, *, threads: int = 0, api_key: str | None = None, timeout_s: float = 30.0
) -> PairScorer | None:
    """Create the cross-encoder for ``spec``, without loading it. Return None for ``none``.

    Args:
        spec: as in ``judges.cross_encoder.judge_spec``. Raises ValueError for an invalid one.
        threads: threads per inference, 0 for one per core (ONNX back ends).
        api_key: the key of a remote judge.
        timeout_s: seconds per request to a remote judge.
    """
    parsed = parse_spec(spec)
    match parsed.kind:
        case "embedded" | "onnx":
            return _open_folder(parsed, threads)
        case "st":
            return _open_sentence_transformers(parsed)
        case "http":
            return HttpScorer(parsed.what, options=parsed.options, api_key=api_key, timeout_s=timeout_s)
        case _:
            return None


def spec_languages(spec: str) -> frozenset[str] | None:
    """Return the languages (two-letter codes) that the model for ``spec`` knows, from the spec's option or the model's
    config.

    None means all, or that only the loaded model knows. Raises ValueError for an invalid spec.
    """
    parsed = parse_spec(spec)
    if parsed.languages is None and (folder := _folder_of(parsed)) is not None:
        return folder_languages(folder)
    return parsed.languages


def _folder_of(spec: JudgeSpec) -> Path | None:
    match spec.kind:
        case "embedded":
            return embedded.FOLDER
        case "onnx":
            return Path(spec.what).expanduser()
        case _:
            return None


def _open_folder(spec: JudgeSpec, threads: int) -> PairScorer:
    folder = _folder_of(spec) or embedded.FOLDER
    kind = CachedEvidenceScorer if (folder / EVIDENCE_GRAPH).is_file() else OnnxScorer
    return kind(folder, threads=threads, label="embedded" if spec.kind == "embedded" else None)


def _open_sentence_transformers(spec: JudgeSpec) -> PairScorer:
    named = spec.options.get("backend", "torch")
    backend = next((one for one in BACKENDS if one == named), None)
    if backend is None:
        raise ValueError(f"judge: unsupported backend {named!r}; expected one of {', '.join(BACKENDS)}")
    return SentenceTransformersScorer(spec.what, backend=backend, languages=spec.languages)
