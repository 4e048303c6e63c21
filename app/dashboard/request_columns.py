"""The columns of the request list, and the operator's selection of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

COLUMNS_COOKIE = "groundlane_columns"


@dataclass(frozen=True, slots=True)
class RequestColumn:
    """A column. ``sort`` is the order that its heading links to. ``number`` aligns its cells to the right."""

    name: str
    heading: str
    sort: str | None = None
    number: bool = False


_COLUMNS = (
    RequestColumn("question", "Question"),
    RequestColumn("action", "Action"),
    RequestColumn("verdict", "Verdict"),
    RequestColumn("agent", "Agent and model"),
    RequestColumn("key", "Key"),
    RequestColumn("trust", "Trust", sort="trust", number=True),
    RequestColumn("sentences", "Sentences", number=True),
    RequestColumn("documents", "Documents", number=True),
    RequestColumn("tokens", "Tokens", sort="tokens", number=True),
    RequestColumn("latency", "Latency", sort="latency", number=True),
    RequestColumn("upstream", "Upstream", number=True),
    RequestColumn("judge", "Judge", number=True),
    RequestColumn("id", "ID"),
)
COLUMNS: Mapping[str, RequestColumn] = {column.name: column for column in _COLUMNS}
"""All columns in order, except the time, which is always shown."""
_DEFAULT = ("question", "action", "verdict", "agent", "trust", "latency", "id")


def chosen_columns(names: Sequence[str], cookie: str | None) -> list[RequestColumn]:
    """Return the columns named in the URL, in the given order. If the URL names none, use those in the cookie. Unknown
    names are ignored."""
    wanted = {*names, *([] if names or not cookie else cookie.split("."))}
    return [column for column in _COLUMNS if column.name in wanted] or [COLUMNS[name] for name in _DEFAULT]
