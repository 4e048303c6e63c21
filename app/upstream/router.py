"""Which upstream gets a model, under which name, and who stands in for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate

from app.config import UpstreamSpec
from app.upstream.request import Form

_CACHED = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """An upstream on the way of a request, and the form it wants the body in."""

    name: str
    form: Form


class Routes:
    """Looks up the way of a request by its model. The first upstream that takes the model gets it; after that come
    those that stand in for it, each with names of its own for models."""

    def __init__(self, specs: Sequence[UpstreamSpec]) -> None:
        self._takers = {spec.name: _Taker(spec) for spec in specs}
        self._first = specs[0].name
        self._known: dict[str | None, Sequence[Stop]] = {}

    def of(self, model: str | None) -> Sequence[Stop]:
        """The stops for ``model``, in order; none if no upstream takes it. Without a model: the first upstream."""
        if (known := self._known.get(model)) is None:
            if len(self._known) >= _CACHED:  # clients choose the names
                self._known.clear()
            known = self._known[model] = self._find(model)
        return known

    def _find(self, model: str | None) -> Sequence[Stop]:
        first = self._first
        if model is not None:
            taking = [name for name, taker in self._takers.items() if taker.takes(model)]
            if not taking:
                return ()
            first = taking[0]
        return tuple(self._stop(name, model) for name in self._in_line(first, model))

    def _in_line(self, first: str, model: str | None) -> Sequence[str]:
        """``first`` and its fallbacks, theirs after them, once each; those that do not take the model are left out."""
        line: dict[str, None] = {first: None}
        waiting = [first]
        while waiting:
            new = [name for name in self._takers[waiting.pop(0)].spec.fallback if name not in line]
            line.update(dict.fromkeys(new))
            waiting.extend(new)
        return [name for name in line if model is None or self._takers[name].takes(model)]

    def _stop(self, name: str, model: str | None) -> Stop:
        taker = self._takers[name]
        theirs = model if model is None else taker.name_of(model)
        return Stop(name=name, form=Form(model=theirs, renamed=theirs != model, documents=taker.spec.accepts_documents))


class _Taker:
    def __init__(self, spec: UpstreamSpec) -> None:
        self.spec = spec
        self._models = [re.compile(translate(glob)) for glob in (*spec.models, *spec.alias)]
        self._alias = [(re.compile(translate(glob)), name) for glob, name in spec.alias.items()]

    def takes(self, model: str) -> bool:
        return model in self.spec.alias or any(glob.match(model) for glob in self._models)

    def name_of(self, model: str) -> str:
        """The upstream's name for ``model``: an alias that is the very name goes before one that is a glob."""
        if model in self.spec.alias:
            return self.spec.alias[model]
        return next((name for glob, name in self._alias if glob.match(model)), model)
