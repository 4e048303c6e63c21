"""Creates the cross-encoder for a spec such as ``embedded`` or ``onnx:<folder>``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from judges import embedded
from judges.cross_encoder.cached_evidence import EVIDENCE_GRAPH, CachedEvidenceScorer, SecondEncoderScorer
from judges.cross_encoder.cascade import CascadeScorer, split_cascade
from judges.cross_encoder.judge_spec import JudgeSpec, parse_spec
from judges.cross_encoder.model_files import cores
from judges.cross_encoder.model_metadata import folder_languages
from judges.cross_encoder.onnx import OnnxScorer
from judges.cross_encoder.presets import find_preset, open_preset, presets
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.cross_encoder.sentence_transformers import BACKENDS, SentenceTransformersScorer
from judges.cross_encoder.services.service_access import HTTP_KEY, ServiceAccess
from judges.cross_encoder.threaded_scorer import JudgeThreadPool
from judges.protocols import PairScorer

_WAIT_SHARE: Final = 0.6
"""Share of the time limit that a cascade gives, in total, to the judges after the first."""
_STATES_BYTES_OF_TWO: Final = (40 * 1024 * 1024, 176 * 1024 * 1024)
"""Memory limits for the window states of the small and the large encoder, enough for 50 and 38 windows."""


def open_scorer(spec: str, *, threads: int = 0, access: ServiceAccess | None = None) -> PairScorer | None:
    """Create the cross-encoder for ``spec`` without loading it. Return None if ``spec`` is ``none``.

    Args:
        spec: the spec of a judge, as described in ``judges.cross_encoder.judge_spec``, or of a cascade
            (``judges.cross_encoder.cascade``). Raises ValueError for an invalid one.
        threads: threads per inference; 0 means one per core. Only for ONNX back ends and presets.
        access: keys and limits for remote judges.
    """
    access = access or ServiceAccess()
    first, stages = split_cascade(spec)
    scorer = _open_one(_parse(first), threads, access)
    patience_s = access.timeout_s * _WAIT_SHARE / max(1, len(stages))
    for stage in stages:
        second = _open_one(_parse(stage.judge), threads, access)
        if scorer is None or second is None:
            raise ValueError(f"judge {spec!r}: 'none' cannot be part of a cascade")
        scorer = CascadeScorer(scorer, second, stage.band, patience_s=patience_s)
    if stages and spec_languages(spec) == frozenset():
        raise ValueError(
            f"cascade {spec!r}: its judges have no language in common; set the option 'languages' for each judge"
        )
    return scorer


def spec_languages(spec: str) -> frozenset[str] | None:
    """Return the languages (two-letter codes) that the model for ``spec`` supports, taken from the spec's option, the
    preset table or the model's config. For a cascade, return those that all its judges support. None means all, or
    unknown until the model is loaded. Raises ValueError for an invalid spec.
    """
    known = [languages for one in spec_stages(spec) if (languages := _languages_of(one)) is not None]
    return frozenset.intersection(*known) if known else None


def spec_stages(spec: str) -> Sequence[JudgeSpec]:
    """Parse ``spec``, which may be a cascade, into the specs of its judges. Raises ValueError for an invalid one."""
    first, stages = split_cascade(spec)
    return [_parse(text) for text in (first, *(stage.judge for stage in stages))]


def _parse(text: str) -> JudgeSpec:
    """Parse the spec of one judge. Raises a ValueError that says what is expected. If ``text`` is the bare name of a
    preset, the error suggests the preset's spec."""
    try:
        return parse_spec(text)
    except ValueError:
        if text.strip().partition("?")[0] in presets():
            raise ValueError(f"judge {text!r}: did you mean 'preset:{text.strip()}'?") from None
        raise


def _languages_of(parsed: JudgeSpec) -> frozenset[str] | None:
    if parsed.languages is None and parsed.kind == "preset":
        return frozenset(find_preset(parsed.what).languages) or None
    if parsed.languages is None and (folder := _folder_of(parsed)) is not None:
        return folder_languages(folder)
    return parsed.languages


def _open_one(parsed: JudgeSpec, threads: int, access: ServiceAccess) -> PairScorer | None:
    match parsed.kind:
        case "embedded":
            return CachedEvidenceScorer(embedded.FOLDER, threads=threads, label=parsed.kind)
        case "embedded-large":
            return _open_embedded_large(threads)
        case "onnx":
            return _open_folder(Path(parsed.what).expanduser(), threads)
        case "st":
            return _open_sentence_transformers(parsed)
        case "http":
            return HttpScorer(
                parsed.what,
                options=parsed.options,
                api_key=access.keys(HTTP_KEY),
                timeout_s=access.timeout_s,
                observe=access.observe,
            )
        case "preset":
            return open_preset(parsed.what, parsed.options, access, threads=threads)
        case _:
            return None


def _folder_of(spec: JudgeSpec) -> Path | None:
    match spec.kind:
        case "embedded" | "embedded-large":
            return embedded.FOLDER
        case "onnx":
            return Path(spec.what).expanduser()
        case _:
            return None


def _open_embedded_large(threads: int) -> PairScorer:
    if not (embedded.LARGE / EVIDENCE_GRAPH).is_file():
        raise ValueError("judge 'embedded-large': not installed; run: pip install groundlane-judge-large")
    return open_encoders((embedded.FOLDER, embedded.LARGE), threads=threads, label="embedded-large")


def open_encoders(folders: Sequence[Path], *, threads: int = 0, label: str | None = None) -> PairScorer:
    """Create a scorer for one or two encoders that cache evidence, without loading it. The second encoder reads all of
    a claim's windows together.
    """
    if len(folders) == 1:
        return CachedEvidenceScorer(folders[0], threads=threads, label=label)
    pool = JudgeThreadPool(threads or cores())
    first, second = (
        CachedEvidenceScorer(
            folder, threads=threads, label=label, pool=pool, separately=separately, states_bytes=states_bytes
        )
        for folder, separately, states_bytes in zip(folders, (True, False), _STATES_BYTES_OF_TWO, strict=True)
    )
    return SecondEncoderScorer(first, second)


def _open_folder(folder: Path, threads: int) -> PairScorer:
    kind = CachedEvidenceScorer if (folder / EVIDENCE_GRAPH).is_file() else OnnxScorer
    return kind(folder, threads=threads)


def _open_sentence_transformers(spec: JudgeSpec) -> PairScorer:
    named = spec.options.get("backend", "torch")
    backend = next((one for one in BACKENDS if one == named), None)
    if backend is None:
        raise ValueError(f"judge: unsupported backend {named!r}; expected one of {', '.join(BACKENDS)}")
    return SentenceTransformersScorer(
        spec.what, backend=backend, device=spec.options.get("device"), languages=spec.languages
    )
