"""What a page shows held against what came: ``…`` stands for anything."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_ANY = "…"
_VARYING = re.compile(r"^(req|run|pol|dec|aud)_[0-9a-f…]+$|^\d{4}-\d\d-\d\dT[\d:.…]+Z$")


def same_text(shown: str, printed: str, where: str) -> None:
    """Fails unless ``printed`` is what is ``shown``: a line that is ``…`` stands for any number of lines, within a
    line it stands for any characters."""
    pieces = []
    for line in shown.rstrip().split("\n"):
        if line.strip() == _ANY:
            pieces.append(r"(?:[^\n]*\n)*?")
        else:
            pieces.append(
                _ANY.join(re.escape(part) for part in line.rstrip().split(_ANY)).replace(_ANY, ".*?") + r" *\n"
            )
    got = printed.rstrip() + "\n"
    assert re.fullmatch("".join(pieces), got), f"{where}: the page shows\n{shown}\nand it prints\n{printed}"


def same_json(shown: Any, got: Any, where: str, path: str = "$") -> None:
    """Fails unless ``got`` is what is ``shown``. Ids and times vary, and so do numbers with a fraction: of those only
    the kind counts. ``…`` as a value stands for any, as a key for more keys, as a last item for more items."""
    place = f"{where}, {path}"
    if shown == _ANY or (isinstance(shown, str) and _VARYING.match(shown) and isinstance(got, str)):
        return
    if isinstance(shown, Mapping):
        assert isinstance(got, Mapping), f"{place}: {got!r} is no object"
        named = shown.keys() - {_ANY}
        assert named <= got.keys(), f"{place}: there is no {sorted(named - got.keys())}"
        assert _ANY in shown or named == got.keys(), f"{place}: not shown are {sorted(got.keys() - named)}"
        for name in named:
            same_json(shown[name], got[name], where, f"{path}.{name}")
    elif isinstance(shown, Sequence) and not isinstance(shown, str):
        assert isinstance(got, Sequence), f"{place}: {got!r} is no list"
        more = bool(shown) and shown[-1] == _ANY
        kept = shown[:-1] if more else shown
        assert len(got) >= len(kept) if more else len(got) == len(kept), f"{place}: it has {len(got)} items"
        for index, item in enumerate(kept):
            same_json(item, got[index], where, f"{path}[{index}]")
    elif isinstance(shown, float) and shown != int(shown):
        assert isinstance(got, float), f"{place}: {got!r} is no number with a fraction"
    elif isinstance(shown, str) and _ANY in shown:
        same_text(shown, str(got), place)
    else:
        assert shown == got, f"{place}: {got!r}, not {shown!r}"
