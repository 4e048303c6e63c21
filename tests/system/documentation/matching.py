"""Compares the output shown on a page with the actual output; ``…`` matches anything."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_ANY = "…"
_VARYING = re.compile(r"^(req|run|pol|dec|aud)_[0-9a-f…]+$|^\d{4}-\d\d-\d\dT[\d:.…]+Z$")


def same_text(shown: str, printed: str, where: str) -> None:
    """Fails unless ``printed`` matches ``shown``.

    ``…`` on a line by itself matches any number of lines; within a line it matches any characters.
    """
    pieces = []
    for line in shown.rstrip().split("\n"):
        if line.strip() == _ANY:
            pieces.append(r"(?:[^\n]*\n)*?")
        else:
            pieces.append(
                _ANY.join(re.escape(part) for part in line.rstrip().split(_ANY)).replace(_ANY, ".*?") + r" *\n"
            )
    got = printed.rstrip() + "\n"
    assert re.fullmatch("".join(pieces), got), f"{where}: the page shows\n{shown}\nbut the output is\n{printed}"


def same_json(shown: Any, got: Any, where: str, path: str = "$") -> None:
    """Fails unless ``got`` matches ``shown``. Ids, times and fractions may vary as long as the type is the same. ``…``
    matches any value; as a key it allows more keys, as the last item more items."""
    place = f"{where}, {path}"
    if shown == _ANY or (isinstance(shown, str) and _VARYING.match(shown) and isinstance(got, str)):
        return
    if isinstance(shown, Mapping):
        assert isinstance(got, Mapping), f"{place}: {got!r} isn't an object"
        named = shown.keys() - {_ANY}
        assert named <= got.keys(), f"{place}: missing keys {sorted(named - got.keys())}"
        assert _ANY in shown or named == got.keys(), f"{place}: keys not shown: {sorted(got.keys() - named)}"
        for name in named:
            same_json(shown[name], got[name], where, f"{path}.{name}")
    elif isinstance(shown, Sequence) and not isinstance(shown, str):
        assert isinstance(got, Sequence), f"{place}: {got!r} isn't a list"
        more = bool(shown) and shown[-1] == _ANY
        kept = shown[:-1] if more else shown
        assert len(got) >= len(kept) if more else len(got) == len(kept), f"{place}: it has {len(got)} items"
        for index, item in enumerate(kept):
            same_json(item, got[index], where, f"{path}[{index}]")
    elif isinstance(shown, float) and shown != int(shown):
        assert isinstance(got, float), f"{place}: {got!r} isn't a fraction"
    elif isinstance(shown, str) and _ANY in shown:
        same_text(shown, str(got), place)
    else:
        assert shown == got, f"{place}: {got!r}, not {shown!r}"
