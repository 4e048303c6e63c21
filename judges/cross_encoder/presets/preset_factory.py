"""Creates the scorer for a preset, given by name, with the adapter for its kind."""

from collections.abc import Callable, Mapping
from typing import Final

from judges.cross_encoder.presets.local_scorer import LOCAL_KINDS, LocalScorer
from judges.cross_encoder.presets.preset_table import Preset, find_preset
from judges.cross_encoder.presets.service_presets import SERVICE_OPTIONS, open_service
from judges.cross_encoder.services.service_access import ServiceAccess
from judges.protocols import PairScorer

Opener = Callable[[Preset, Mapping[str, str], ServiceAccess, int], PairScorer]


def _open_local(preset: Preset, options: Mapping[str, str], _access: ServiceAccess, threads: int) -> PairScorer:
    return LocalScorer(preset, options, threads=threads)


def _open_service(preset: Preset, options: Mapping[str, str], access: ServiceAccess, _threads: int) -> PairScorer:
    return open_service(preset, options, access)


_LOCAL_OPTIONS: Final = frozenset({"model", "base", "revision", "device", "dtype", "languages", "trust_remote_code"})
_OPENERS: Final[Mapping[str, tuple[Opener, frozenset[str]]]] = {
    **{kind: (_open_local, _LOCAL_OPTIONS) for kind in LOCAL_KINDS},
    **{kind: (_open_service, options) for kind, options in SERVICE_OPTIONS.items()},
}
"""Maps each kind to its adapter and the adapter's options."""


def open_preset(name: str, options: Mapping[str, str], access: ServiceAccess, *, threads: int = 0) -> PairScorer:
    """Create the scorer for the preset ``name`` without loading it. Raises ValueError for an unknown name, an option
    that the preset doesn't take, or a missing required option. ``access`` is for presets that are services. ``threads``
    is for the others; 0 means one per core.
    """
    preset = find_preset(name)
    opener, allowed = _OPENERS[preset.kind]
    if unknown := sorted(options.keys() - allowed):
        raise ValueError(
            f"preset {name!r}: unknown option {unknown[0]!r}; options: {', '.join(sorted(allowed)) or 'none'}"
        )
    return opener(preset, options, access, threads)
