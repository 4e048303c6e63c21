"""Loads the rules for each language from its table (``<language>.toml``) and merges them. All tables are used together,
because replies mix languages without declaring them."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

LANGUAGES = ("en", "de", "fr", "es")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """Words that decide whether a full stop ends a sentence. They are case-folded, and their last full stop is removed.

    ``en.toml`` explains each list.
    """

    titles: frozenset[str]
    numbered: frozenset[str]
    ending: frozenset[str]
    loose: frozenset[str]
    starters: frozenset[str]
    calendar: frozenset[str]
    initial_before: frozenset[str]
    ordinal_before: frozenset[str]
    ordinal_after: frozenset[str]
    dangling: frozenset[str]
    lead_ins: tuple[str, ...]


# Endings of the refusals in the claim rules, and words that may follow each of them.
APOLOGY: Final = re.compile(
    r"(?:sorry|apologi[sz]e|apologies|leid|entschuldigung|désolée?|m'excuse|siento|lamento|disculpe|perdón)\Z"
)
UNABLE: Final = re.compile(
    r"(?:cannot|can't|can not|could not|couldn't|not able|unable(?: to)?|able to"
    r"|ich (?:kann|konnte)(?: \w+)* nicht|ne peux|ne suis pas en mesure|no puedo)\Z"
)
REFUSED: Final = re.compile(
    r"(?: pas| to| de)?(?: (?:really|fully|directly|say|tell|me|you))* (?:(?:help|assist)(?: you)?(?= with\b|\W*\Z)"
    r"|answer|find|say|tell|confirm|determine|verify|be (?:sure|certain)"
    r"|(?:provide|give|share|offer)(?: you)?(?: with)?(?: (?:any|an?|the|that|this|more|further|specific|exact))*"
    r" (?:information|details?|answers?)|sagen"
    r"|finden|helfen|beantworten|weiterhelfen|répondre|dire|trouver|aider|confirmer|responder"
    r"|ayudar\w*|decir|encontrar|confirmar)\b"
)
"""Verbs that may follow a refusal that ends with "can't": verbs of telling or knowing. "I can't offer tea" isn't a
refusal, because it may be about what is allowed."""
PASSIVE: Final = re.compile(r"\A\s*(?:wird|werden|ist|sind)\b|\b(?:is|are|was|were)\s*\Z")
"""Verbs at the beginning or end of the variable part of a refusal."""
KNOWING: Final = re.compile(r"(?:know|idk|weiß(?: \w+)* nicht|ne sais|no (?:lo )?sé)\Z")
KNOWN_BY: Final = re.compile(
    r"(?: pas)?,?(?: (?:exactly|yet|based|genau|the|your|this|that|any|anything|enough|about|of|for|from|in|whether|if"
    r"|how|why|what|when|where|which|who|whose|über|ob|wie|was|wann|warum|welche\w*|wer|wo|sur|si|comment|pourquoi|quand|quel\w*"
    r"|qui|où|sobre|cómo|cuándo|cuál\w*|quién|dónde|qué)\b|\W*\Z)"
)
"""Words that may follow a refusal that ends with "know"."""
THAT_CLAUSE: Final = re.compile(
    r" (?:(?:that|dass|que) (?!(?:in|from|about|for|of|question|information|answer|data)\b)"
    r"|(?:and|or|und|oder|et|ou|y|o) )\w"
)
HAVING: Final = re.compile(r"(?:(?:don't|do not) have|n'ai pas|ne dispose|no (?:tengo|dispongo))\Z")
HELD: Final = re.compile(
    r" (?:(?:any|enough|the|that|this|sufficient|specific|reliable|more|further|an?|direct|pas|de|la|suficiente) )*"
    r"(?:information|details?|answers?|context|knowledge|idea|d'informations?|de détails|información|respuestas?)\b"
)
"""Objects of a refusal that ends with "don't have"."""
_STATING_LISTED = (
    "is are was were isn't aren't wasn't weren't be been being becomes become became has had will would must "
    "shall should cannot can't won't don't doesn't didn't costs cost equals means requires allows permits ist "
    "sind war waren wird werden muss müssen darf dürfen kostet beträgt gilt gelten est sont était étaient sera "
    "seront doit doivent coûte es son eran era están está será serán debe deben cuesta"
)
STATING: Final = frozenset(_STATING_LISTED.split())
"""Verbs that turn a heading or topic into a statement."""
_COSTS: Final = ("cost", "costs")
"""Verbs that are often nouns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmlessRules:
    """The closed lists of text that states nothing, merged and compiled; ``harmless.toml`` explains each."""

    courtesies: re.Pattern[str]
    prefixes: re.Pattern[str]
    tags: re.Pattern[str]
    questions: re.Pattern[str]
    answers: re.Pattern[str]
    lead_ins: re.Pattern[str]
    announcements: re.Pattern[str]
    """Matches an announcement up to the end of its part of the sentence."""
    assents: re.Pattern[str]
    wishes: re.Pattern[str]
    judgements: re.Pattern[str]
    open_questions: re.Pattern[str]
    closed: re.Pattern[str]
    open: re.Pattern[str]
    """Matches the beginning of a clause that is known to ask for more than yes or no."""
    manner: re.Pattern[str]
    told: re.Pattern[str]
    telling: frozenset[str]
    words: frozenset[str]
    asking: frozenset[str]
    about: frozenset[str]
    """Prepositions after which a question to the user may name what the user asked about."""
    courteous: frozenset[str]
    connectors: frozenset[str]
    determiners: frozenset[str]
    imperatives: frozenset[str]
    infinitives: frozenset[str]
    """German infinitives. At the end of a label, they are instructions to the reader."""
    quantities: frozenset[str]
    uncounted: frozenset[str]
    heads: frozenset[str]
    verbs: frozenset[str]
    predicates: frozenset[str]
    relating: frozenset[str]
    beginning: frozenset[str]
    subjects: frozenset[str]
    parts: frozenset[str]
    """Words for a part of a reply. In a label, such a word may be next to a name."""
    placeholders: re.Pattern[str]

    def is_clause(self, words: Sequence[str], *, strict: bool = False) -> bool:
        """Return whether ``words`` can be read as a clause rather than a noun phrase, because one of them is a verb or
        is in a position that only a verb or a predicate can have. With ``strict``, a first word followed by its object
        counts as a verb too ("return the lamp")."""
        if not STATING.isdisjoint(word for word in words if word not in _COSTS):
            return True
        if len(words) > 1 and words[0] in self.subjects and self.names(words[1]):
            return True
        padded = ["", *words, ""]
        return any(
            self._is_predicate(
                *padded[place : place + 3], takes_object=(strict or place > 1) and padded[place - 1] != "to"
            )
            for place in range(1, len(words))
        )

    def _is_predicate(self, before: str, word: str, after: str, *, takes_object: bool) -> bool:
        """Return whether ``word`` is a verb or a predicate after the noun ``before``. With ``takes_object``, ``before``
        may also be a verb, and the result is also True if ``word`` begins its object."""
        if not self.names(before):
            return False
        if word in self.verbs or word in self.predicates:
            return True
        if word in _COSTS:
            return self.names(after) or after in self.beginning
        if word.endswith("s") and not word.endswith(("ss", "us", "is", "'s")):
            return self.names(after) and after not in self.heads
        if word.endswith("ed") and word not in self.heads and not before.endswith("ly"):
            return True
        return takes_object and word in self.beginning and not before.endswith("ing")

    def names(self, word: str) -> bool:
        """Return whether ``word`` isn't a function word."""
        return not (not word or word in self.relating or word in self.beginning)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """Patterns that match at the start of a lower-case sentence, unless a field says otherwise."""

    meta: re.Pattern[str]
    labels: re.Pattern[str]
    headings: re.Pattern[str]
    """Generic headings, which don't describe the text below them."""
    refusals: re.Pattern[str]
    """Matches a refusal. The groups match the words that vary."""
    fillers: re.Pattern[str]
    pronouns: re.Pattern[str]
    connectives: re.Pattern[str]
    contrasts: re.Pattern[str]
    """Matches the text between two clauses: a comma or semicolon, and the word that contrasts the second clause with
    the first."""
    attributions: re.Pattern[str]
    """A prefix that names no specific source: "According to the document, ", "The policy says that "."""
    trailing: re.Pattern[str]
    """A phrase that names no specific source, at the end of a sentence: before the end mark, after a comma or in
    brackets."""
    openers: re.Pattern[str]
    """A prefix without content, such as "Note: " or "The answer to your question is: "."""


_SPELT_OUT: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_OPEN_WORDS: Final = re.compile(r"\(\?:(?:\\w\+ | \\w\+)\)(?:\{\d,\d\}|\?)|\[\^[^\]]*\]\{\d+,\d+\}")
_ESCAPE: Final = re.compile(r"\\\w|\{[^}]{0,40}\}|\(\?P<\w+>")


def words_in(pattern: str) -> frozenset[str]:
    """Return the words that occur literally in a pattern."""
    return frozenset(_SPELT_OUT.findall(_ESCAPE.sub(" ", pattern)))


@lru_cache(maxsize=8)
def split_rules(languages: Sequence[str] = LANGUAGES) -> SplitRules:
    """Return the merged tables of ``languages`` (a tuple of codes). Raises ValueError for a language without a
    table."""
    tables = [_table(language)["split"] for language in languages]
    words = {
        name: frozenset(word for table in tables for word in table[name])
        for name in SplitRules.__dataclass_fields__
        if name != "lead_ins"
    }
    return SplitRules(**words, lead_ins=tuple(opening for table in tables for opening in table["lead_ins"]))


@lru_cache(maxsize=8)
def claim_rules(languages: Sequence[str] = LANGUAGES) -> ClaimRules:
    """Return the merged patterns of ``languages`` (a tuple of codes). Raises ValueError for a language without a
    table."""
    tables = [_table(language) for language in languages]

    def any_of(name: str) -> str:
        return _alternatives(_expand(entry, table["words"]) for table in tables for entry in table["claims"][name])

    def opening(name: str) -> re.Pattern[str]:
        return re.compile(rf"\W*{any_of(name)}(?!\w)")

    return ClaimRules(
        meta=opening("meta"),
        labels=opening("labels"),
        headings=re.compile(rf"\W*{any_of('headings')}\W*\Z"),
        refusals=re.compile(rf"\W*+{_OPEN_WORDS.sub(_grouped, any_of('refusals'))}(?!\w)"),
        fillers=re.compile(rf"\W*{any_of('fillers')}\b,? *"),
        pronouns=opening("pronouns"),
        connectives=opening("connectives"),
        contrasts=re.compile(rf"[,;] {any_of('contrasts')}\b,? *"),
        attributions=re.compile(
            rf"{any_of('attributions')} {any_of('sources')}(?:,|:) +|{any_of('sources')} {any_of('reports')} *"
        ),
        trailing=re.compile(rf"(?:, | \(){any_of('behind')} {any_of('sources')}\)?(?=[.!。]*\Z)"),
        openers=re.compile(rf"\W*{any_of('openers')} *"),
    )


@lru_cache(maxsize=8)
def harmless_rules(languages: Sequence[str], function_words: frozenset[str]) -> HarmlessRules:
    """Return the merged closed lists of ``languages`` (a tuple of codes), together with the lists of the languages
    without rules. ``function_words`` are words that name nothing."""
    data = tomllib.loads((resources.files(__package__) / "harmless.toml").read_text(encoding="utf-8"))
    others = () if len(languages) < len(LANGUAGES) else (language for language in data if language not in languages)
    tables = [data[language] for language in (*languages, *others) if language in data]
    numbers = iter(range(10_000))

    def entries(table: Mapping[str, Any], name: str) -> list[str]:
        found = table.get(name, [])
        return found if isinstance(found, list) else [found.replace("<manner>", table.get("manner", ""))]

    def every(name: str) -> str:
        return "|".join(
            _expand_slots(entry, table["slots"], numbers) for table in tables for entry in entries(table, name)
        )

    def listed(name: str) -> frozenset[str]:
        return frozenset(word for table in tables for word in table.get(name, "").split())

    imperatives = listed("imperatives")
    plurals = {
        f"{word}{table['plural']}"
        for table in tables
        for word in table["imperatives"].split()
        if "plural" in table and word[-1] in "ae"
    }
    announcements = every("announcements")
    courtesies = f"{every('courtesies')}|{announcements}|{every('assents')}|{every('wishes')}"
    return HarmlessRules(
        courtesies=re.compile(f"(?:{courtesies})"),
        prefixes=re.compile(
            rf"(?:(?:{every('prefixes')})(?:\s*[,:]\s*|\s+)|(?:{courtesies})\s*(?:[,:!;]|[–—-](?=\s))"
            r"(?!\s*(?:an?|the) [^,]{1,80},)\s*)"  # "Hey Jude, a song by the Beatles, ..."
        ),
        tags=re.compile(rf"\s*,\s*(?:{every('tags')})\s*[?？]\s*\Z"),
        questions=re.compile(f"(?:{every('questions')})"),
        answers=re.compile(f"(?:{every('answers')}|{every('assents')}|{every('wishes')})"),
        lead_ins=re.compile(f"(?:{every('lead_ins')})"),
        announcements=re.compile(rf"(?:{announcements}|{every('lead_ins')})(?=\s*(?:[,:;.!?…)–—-]|\Z))"),
        assents=re.compile(f"(?:{every('assents')})"),
        wishes=re.compile(f"(?:{every('wishes')})"),
        judgements=re.compile(f"(?:{every('judgements')})"),
        open=re.compile(f"(?:{every('open')})"),
        manner=re.compile(f"(?:{every('manner')})"),
        told=re.compile(f"(?:{every('told')})"),
        telling=listed("telling"),
        open_questions=re.compile(rf"(?:{every('open_questions')})\b"),
        closed=re.compile(
            rf"(?:\A|[.!?:,\n]\s*)(?:{'|'.join(table['closed'].replace('’', chr(39)) for table in tables)})"
        ),
        words=frozenset(word for table in tables for word in table["words"].split()),
        asking=words_in(every("questions")) | listed("asking"),
        about=listed("about"),
        courteous=listed("courteous"),
        connectors=listed("connectors"),
        determiners=listed("determiners"),
        imperatives=imperatives | plurals,
        infinitives=frozenset(word for word in data["de"]["imperatives"].split() if word.endswith("en")),
        quantities=listed("quantities"),
        uncounted=listed("uncounted"),
        heads=listed("heads"),
        verbs=listed("verbs"),
        predicates=listed("predicates"),
        relating=listed("relating") | function_words,
        beginning=listed("beginning"),
        subjects=listed("subjects"),
        parts=listed("parts"),
        placeholders=re.compile(
            "|".join(table["slots"]["placeholder"] for table in tables if "placeholder" in table["slots"]) or r"(?!)"
        ),
    )


def _expand(entry: str, words: Mapping[str, str]) -> str:
    for name, pattern in words.items():
        entry = entry.replace(f"<{name}>", pattern)
    return entry


def _grouped(found: re.Match[str]) -> str:
    return f"({found[0]})"


def _alternatives(entries: Iterable[str]) -> str:
    return "(?:" + "|".join(sorted(set(entries), key=len, reverse=True)) + ")"


def _table(language: str) -> dict[str, Any]:
    source = resources.files(__package__) / f"{language}.toml"
    if not source.is_file():
        raise ValueError(f"languages: no table for {language!r}")
    return tomllib.loads(source.read_text(encoding="utf-8"))


def _expand_slots(entry: str, slots: dict[str, Any], numbers: Iterator[int]) -> str:
    for name, pattern in slots.items():
        entry = entry.replace(f"<{name}>", pattern)
    entry = entry.replace("’", "'")
    for kind in ("topic", "object", "noun"):
        while f"<{kind}>" in entry:
            entry = entry.replace(f"<{kind}>", rf"(?P<{kind}{next(numbers)}>(?: |(?<= ))[^,;:.!?\n]{{0,160}}?)?", 1)
    while "<known>" in entry:
        entry = entry.replace("<known>", rf"(?P<known{next(numbers)}>[^\s,;:.!?]{{1,40}}(?: [^\s,;:.!?]{{1,40}})?)", 1)
    return entry
