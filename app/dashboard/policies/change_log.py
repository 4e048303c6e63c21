"""Policy changes and their authors, read from the audit log."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from app.auth.audit_log import AuditFilter, entries
from app.dashboard.policies.version_diff import draft_of
from app.db.database import Database
from app.policy_admin.policy_document import PolicyVersion

_POLICY = "policy"
_WORDS = {"create": "created", "update": "changed", "rollback": "rolled back", "delete": "deleted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedChange:
    """A change in the audit log. ``fields`` lists each changed field by name, with its values before and after the
    change."""

    ts: datetime
    actor: str
    policy_id: str
    name: str
    word: str
    fields: Sequence[tuple[str, str, str]]


async def logged_changes(
    database: Database, *, since: datetime, until: datetime, policy_id: str | None, limit: int
) -> list[LoggedChange]:
    """Return up to ``limit`` changes to all policies or to one policy, newest first. Raises
    DatabaseUnavailableError."""
    filter = AuditFilter(kind=_POLICY, since=since, until=until, target=policy_id)
    return [_logged(entry) for entry in await entries(database, filter, limit=limit)]


async def authors(database: Database, versions: Sequence[PolicyVersion]) -> dict[int, str]:
    """Return who saved each of a policy's ``versions``, by version number. ``versions`` are sorted newest first. A
    version without an entry in the audit log is omitted.

    Raises DatabaseUnavailableError.
    """
    if not versions:
        return {}
    filter = AuditFilter(kind=_POLICY, since=versions[-1].ts, target=versions[0].policy_id)
    return authors_in(await entries(database, filter, limit=500), versions)


def authors_in(logged: Sequence[Mapping[str, Any]], versions: Sequence[PolicyVersion]) -> dict[int, str]:
    """Find the authors in ``logged``, which is sorted newest first. A version's entry is the first entry at or after
    the version's time that has the same kind of change and the same document."""
    found: dict[int, str] = {}
    for version in versions:
        document = asdict(draft_of(version))
        for entry in reversed(logged):
            same = entry["action"] == f"{_POLICY}.{version.change}" and entry["after"] in (None, document)
            if same and entry["ts"] >= version.ts:
                found[version.version] = entry["actor"]
                break
    return found


def _logged(entry: Mapping[str, Any]) -> LoggedChange:
    before, after = entry["before"] or {}, entry["after"] or {}
    change = entry["action"].removeprefix(f"{_POLICY}.")
    return LoggedChange(
        ts=entry["ts"],
        actor=entry["actor"],
        policy_id=entry["target"],
        name=after.get("name") or before.get("name") or entry["target"],
        word=_WORDS.get(change, change),
        fields=list(_differences(before, after)) if before and after else [],
    )


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    old, new = _flat(before), _flat(after)
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            yield name, _shown(old, name), _shown(new, name)


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields and the rules in one mapping. No field has the same name as a rule."""
    return {name: value for name, value in document.items() if name != "rules"} | dict(document.get("rules") or {})


def _shown(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "default"
    value = values[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
