"""The state of the policy form: its entries, their errors, and the result of a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.dashboard.policies.form_fields import Entries, all_fields, document_of, entries_of, errors_by_field
from app.dashboard.policies.version_diff import EditConflict, conflicts, draft_of
from app.policy_admin.policy_document import PolicyDraft, StoredPolicy, parse_document
from app.policy_admin.policy_store import PolicyStore
from app.policy_simulation import SimulationSummary
from policies.base import RulesError
from policies.policy_warnings import GatewayFacts, policy_warnings
from policies.registry import parse_rules

SIMULATION_LIMITS = (100, 1_000, 10_000, 100_000)
"""The choices for the number of requests that a simulation replays."""
DEFAULT_LIMIT = SIMULATION_LIMITS[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The result of a simulation. ``matching`` is the number of logged requests; only the newest of them were read.
    ``changed`` counts requests by their action before and after. ``other_reasons`` counts requests with the same action
    but different reasons."""

    tally: SimulationSummary
    matching: int
    summary: Mapping[str, Any]
    changed: Sequence[tuple[str, str, int]]
    other_reasons: int

    @property
    def read(self) -> int:
        return self.tally.requests + self.tally.unreadable

    @classmethod
    def of(cls, tally: SimulationSummary, *, matching: int) -> "SimulationResult":
        summary = tally.summary()
        changed = [
            (before, after, count)
            for before, counts in summary["actions"].items()
            for after, count in counts.items()
            if before != after
        ]
        return cls(
            tally=tally,
            matching=matching,
            summary=summary,
            changed=sorted(changed, key=lambda change: -change[2]),
            other_reasons=tally.changed - sum(count for _, _, count in changed),
        )


_SHADOW = (
    "This policy starts in shadow mode: its decisions are logged, but replies don't change. When you are happy with "
    "its decisions, set the mode to enforce."
)


@dataclass(slots=True, kw_only=True)
class PolicyEditor:
    """The form's state. ``saved`` has the stored policy's entries, and ``version`` is the version being edited.
    ``stale`` means that someone else has saved a newer version. A simulation replays the newest ``limit`` requests, of
    all agents or of ``agent``."""

    category: str
    entries: Entries
    saved: Entries | None = None
    policy: StoredPolicy | None = None
    version: int = 0
    limit: int = DEFAULT_LIMIT
    agent: str = ""
    note: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)
    stale: bool = False
    conflicts: Sequence[EditConflict] = ()
    simulation: SimulationResult | None = None

    @classmethod
    def editing(cls, policy: StoredPolicy) -> "PolicyEditor":
        entries = stored_entries(policy)
        return cls(category=policy.category, entries=entries, saved=entries, policy=policy, version=policy.version)

    @classmethod
    def new(cls, document: Mapping[str, Any], category: str, note: str = "") -> "PolicyEditor":
        """Build the editor for a new policy based on ``document``. It starts in shadow mode, regardless of the mode of
        ``document``, because saving an untested policy must not change replies."""
        entries = entries_of({**document, "mode": "shadow"}, category)
        return cls(category=category, entries=entries, note=f"{note} {_SHADOW}".lstrip())

    def draft(self) -> PolicyDraft:
        """Validate the entries. Raises InvalidAdminRequestError."""
        return parse_document(document_of(self.entries, self.category))

    def warnings(self, facts: GatewayFacts) -> Mapping[str, Sequence[str]]:
        """Return warnings about the entered rules and scope, by field key. If they are invalid, return their errors
        instead. Other fields may still be empty."""
        document = document_of(self.entries, self.category)
        try:
            rules = parse_rules(self.category, document["rules"])
        except RulesError as error:
            return {key: [message] for key, message in errors_by_field(error.errors, self.category).items()}
        found: dict[str, list[str]] = {}
        for warning in policy_warnings(self.category, rules, document["scope"]["models"], facts):
            found.setdefault(".".join(warning.loc), []).append(warning.msg)
        return found

    def fill_in(self, given: Mapping[str, Sequence[str]]) -> None:
        """Replace the entries of the fields in ``given``."""
        known = {each.key for each in all_fields(self.category)}
        filled = {key: [text for text in texts if text] for key, texts in given.items() if key in known}
        self.entries = {**self.entries, **filled}

    async def reconcile(self, store: PolicyStore, ours: PolicyDraft, policy: StoredPolicy) -> None:
        """Merge with the newer version that someone else saved: adopt the fields that only they changed, and list the
        differences. The next save replaces their version."""
        policy = await store.get(policy.id)
        theirs = policy.draft()
        found = await store.versions(policy.id, before=self.version + 1, limit=1)
        base = draft_of(found[0]) if found and found[0].version == self.version else theirs
        self.conflicts = conflicts(base, theirs, ours)
        if theirs.category == ours.category:
            taken = entries_of(asdict(theirs), ours.category)
            kept = {conflict.key for conflict in self.conflicts if conflict.by != "them"}
            self.entries = {key: self.entries.get(key, ()) if key in kept else taken[key] for key in taken}
            self.saved = taken
        self.policy, self.version, self.stale = policy, policy.version, True


def submitted_editor(entries: Entries, category: str) -> PolicyEditor:
    """Build the editor for a submitted form."""
    version, limit = "".join(entries.get("version", ())), "".join(entries.get("limit", ()))
    return PolicyEditor(
        category=category,
        entries=entries,
        version=int(version) if version.isdecimal() and len(version) < 10 else 0,
        limit=int(limit) if limit in map(str, SIMULATION_LIMITS) else DEFAULT_LIMIT,
        agent="".join(entries.get("agent", ())),
    )


def stored_entries(policy: StoredPolicy) -> Entries:
    return entries_of(asdict(policy.draft()), policy.category)
