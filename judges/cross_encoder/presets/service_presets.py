"""Presets that are services: cloud checks, and generative models behind an OpenAI-compatible server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from judges.cross_encoder.presets.preset_table import Preset
from judges.cross_encoder.services.azure_groundedness import AzureGroundednessService
from judges.cross_encoder.services.bedrock_guardrail import BedrockGuardrailService
from judges.cross_encoder.services.chat_service import ChatService
from judges.cross_encoder.services.generative_forms import GraniteGuardianForm, LynxForm, MiniCheckForm
from judges.cross_encoder.services.pair_service import Key, PairService
from judges.cross_encoder.services.service_access import HTTP_KEY, ServiceAccess
from judges.cross_encoder.services.service_scorer import ServiceScorer
from judges.cross_encoder.services.vectara import VectaraService
from judges.cross_encoder.services.vertex_check_grounding import VertexCheckGroundingService

KEY_SETTINGS: Final[Mapping[str, str]] = {
    "vectara": "GROUNDLANE_VECTARA_API_KEY",
    "azure-content-safety": "GROUNDLANE_AZURE_CONTENT_SAFETY_API_KEY",
    "google": "GROUNDLANE_GOOGLE_CREDENTIALS",
    "bedrock": "GROUNDLANE_BEDROCK_API_KEY",
    HTTP_KEY: "GROUNDLANE_JUDGE_API_KEY",
}
"""Maps each key's name to the setting that holds the key. A key stored as a secret in the database has the same
name."""

_CONCURRENCY: Final = 8
_MAX_CONCURRENCY: Final = 1_000


Make = Callable[[Preset, Mapping[str, str], Key, str], PairService]


@dataclass(frozen=True, slots=True)
class _ServiceKind:
    """A kind of service. ``key`` is the name of its API key; ``options`` are the options that its presets take."""

    key: str
    options: frozenset[str]
    make: Make


def _cloud(service: type[PairService]) -> Make:
    return lambda preset, options, key, key_help: service(f"preset:{preset.name}", options, key, key_help)


def _chat(preset: Preset, options: Mapping[str, str], key: Key, key_help: str) -> PairService:
    match preset.kind:
        case "chat-minicheck":
            form: MiniCheckForm | GraniteGuardianForm | LynxForm = MiniCheckForm()
        case "chat-granite-guardian":
            form = GraniteGuardianForm(documents=preset.form["documents"])
        case _:
            form = LynxForm()
    return ChatService(f"preset:{preset.name}", options, key, key_help, form=form, model=preset.model)


_KINDS: Final[Mapping[str, _ServiceKind]] = {
    "vectara": _ServiceKind("vectara", VectaraService.OPTIONS, _cloud(VectaraService)),
    "azure-groundedness": _ServiceKind(
        "azure-content-safety", AzureGroundednessService.OPTIONS, _cloud(AzureGroundednessService)
    ),
    "vertex-check-grounding": _ServiceKind(
        "google", VertexCheckGroundingService.OPTIONS, _cloud(VertexCheckGroundingService)
    ),
    "bedrock-guardrail": _ServiceKind("bedrock", BedrockGuardrailService.OPTIONS, _cloud(BedrockGuardrailService)),
    "chat-minicheck": _ServiceKind(HTTP_KEY, ChatService.OPTIONS, _chat),
    "chat-granite-guardian": _ServiceKind(HTTP_KEY, ChatService.OPTIONS, _chat),
    "chat-lynx": _ServiceKind(HTTP_KEY, ChatService.OPTIONS, _chat),
}
SERVICE_OPTIONS: Final[Mapping[str, frozenset[str]]] = {name: kind.options for name, kind in _KINDS.items()}
"""The options of each kind of preset that is a service."""


def open_service(preset: Preset, options: Mapping[str, str], access: ServiceAccess) -> ServiceScorer:
    """Create the scorer for ``preset`` without connecting to the service. Raises ValueError for a missing or invalid
    option."""
    kind = _KINDS[preset.kind]
    key_help = f"set {KEY_SETTINGS[kind.key]}, or store it as the secret {kind.key!r}"
    return ServiceScorer(
        kind.make(preset, options, lambda: access.keys(kind.key), key_help),
        access,
        concurrency=_concurrency(preset.name, options.get("concurrency")),
        threshold=preset.threshold,
        windowing=preset.windowing,
    )


def _concurrency(name: str, text: str | None) -> int:
    if text is None:
        return _CONCURRENCY
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_CONCURRENCY:
        raise ValueError(f"judge {name}: concurrency: expected an integer from 1 to {_MAX_CONCURRENCY}, got {text!r}")
    return int(text)
