"""Selects the upstream that serves a model, the upstream's name for the model, and its fallbacks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate

from app.config import UpstreamSpec
from app.upstream.provider import BodyFormat

_CACHED = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An upstream for a request, and the body format that it needs."""

    name: str
    body_format: BodyFormat


class Router:
    """Finds the upstreams for a model: the first one whose ``models`` match, followed by its fallbacks. Each upstream
    may have a different name for the model."""

    def __init__(self, specs: Sequence[UpstreamSpec]) -> None:
        self._matchers = {spec.name: _ModelMatcher(spec) for spec in specs}
        self._first = specs[0].name
        self._cache: dict[str | None, Sequence[Route]] = {}

    def routes(self, model: str | None) -> Sequence[Route]:
        """Return the routes for ``model``, in order. There are none if no upstream serves the model. Without a model,
        the first upstream is used."""
        if (known := self._cache.get(model)) is None:
            if len(self._cache) >= _CACHED:  # clients choose the names, so there may be any number of them
                self._cache.clear()
            known = self._cache[model] = self._find(model)
        return known

    def serves(self, glob: str) -> bool:
        """Return whether an upstream serves a model that matches ``glob``, which is a name or a shell glob. If the
        upstream's own pattern is a glob too, the two are assumed to have a model in common."""
        if not _is_glob(glob):
            return bool(self.routes(glob))
        specs = [matcher.spec for matcher in self._matchers.values()]
        patterns = [pattern for spec in specs for pattern in (*spec.models, *spec.alias)]
        return any(_is_glob(pattern) or fnmatchcase(pattern, glob) for pattern in patterns)

    def _find(self, model: str | None) -> Sequence[Route]:
        first = self._first
        if model is not None:
            serving = [name for name, matcher in self._matchers.items() if matcher.serves(model)]
            if not serving:
                return ()
            first = serving[0]
        return tuple(self._route(name, model) for name in self._with_fallbacks(first, model))

    def _with_fallbacks(self, first: str, model: str | None) -> Sequence[str]:
        """Return ``first``, its fallbacks, and their fallbacks, without duplicates. Upstreams that don't serve the
        model are left out."""
        line: dict[str, None] = {first: None}
        waiting = [first]
        while waiting:
            new = [name for name in self._matchers[waiting.pop(0)].spec.fallback if name not in line]
            line.update(dict.fromkeys(new))
            waiting.extend(new)
        return [name for name in line if model is None or self._matchers[name].serves(model)]

    def _route(self, name: str, model: str | None) -> Route:
        matcher = self._matchers[name]
        theirs = model if model is None else matcher.name_of(model)
        return Route(
            name=name,
            body_format=BodyFormat(model=theirs, renamed=theirs != model, documents=matcher.spec.accepts_documents),
        )


def _is_glob(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[")


class _ModelMatcher:
    def __init__(self, spec: UpstreamSpec) -> None:
        self.spec = spec
        self._models = [re.compile(translate(glob)) for glob in (*spec.models, *spec.alias)]
        self._alias = [(re.compile(translate(glob)), name) for glob, name in spec.alias.items()]

    def serves(self, model: str) -> bool:
        return model in self.spec.alias or any(glob.match(model) for glob in self._models)

    def name_of(self, model: str) -> str:
        """Return the upstream's name for ``model``. An alias for exactly this name takes precedence over aliases with
        globs."""
        if model in self.spec.alias:
            return self.spec.alias[model]
        return next((name for glob, name in self._alias if glob.match(model)), model)
