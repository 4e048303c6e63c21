"""The playground's examples. Each has documents and an answer that partly contradicts them. All content is
fictional."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FormDocument:
    """A document as entered in the form. Numbers are stored as text."""

    name: str = ""
    text: str = ""
    relevance: str = ""
    age: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    title: str
    question: str
    answer: str
    documents: tuple[FormDocument, ...] = field(default_factory=tuple)


EXAMPLES: Mapping[str, Example] = {
    "tablets": Example(
        title="Leaflet",
        question="How do I take Ostrevane, and what is the maximum dose?",
        answer=(
            "Take one 10 mg tablet twice a day with food. Do not take more than 8 tablets in 24 hours. "
            "If you miss a dose, take it as soon as you remember. Grapefruit juice makes the tablets stronger."
        ),
        documents=(
            FormDocument(
                name="Ostrevane leaflet: how to take them",
                relevance="0.97",
                age="120",
                text=(
                    "Adults take one 10 mg tablet twice a day with food. Do not take more than 4 tablets in 24 hours. "
                    "Swallow the tablets whole with a glass of water. "
                    "If you miss a dose, take it as soon as you remember."
                ),
            ),
            FormDocument(
                name="Ostrevane leaflet: warnings",
                relevance="0.90",
                age="120",
                text=(
                    "Do not take Ostrevane if you are pregnant. Common side effects are headache, dry mouth and "
                    "drowsiness. Do not store the tablets above 25 degrees Celsius."
                ),
            ),
        ),
    ),
    "machine": Example(
        title="Manual",
        question="How do I look after the Aurora E2?",
        answer=(
            "Descale the machine every 3 months or after 200 espressos, whichever comes first. "
            "A descaling cycle takes 45 minutes. Use vinegar if you have no descaler. "
            "The warranty covers 24 months from the date of purchase."
        ),
        documents=(
            FormDocument(
                name="Aurora E2 manual: care",
                relevance="0.93",
                age="40",
                text=(
                    "Descale the machine every 3 months or after 200 espressos, whichever comes first. Use only citric "
                    "acid descaler. Do not use vinegar, because it damages the seals. A descaling cycle takes 25 "
                    "minutes."
                ),
            ),
            FormDocument(
                name="Aurora E2 manual: brewing",
                relevance="0.81",
                age="40",
                text=(
                    "The brew boiler holds 0.6 litres and reaches operating temperature in 7 minutes. The pump works "
                    "at 9 bar. The warranty covers 24 months from the date of purchase."
                ),
            ),
        ),
    ),
    "leave": Example(
        title="HR policy",
        question="How much leave do I get?",
        answer=(
            "Full-time employees receive 28 days of paid annual leave per calendar year. The canteen serves free lunch "
            "on Fridays. Up to 12 unused days may be carried over and must be taken by 31 March."
        ),
        documents=(
            FormDocument(
                name="Annual leave 2026",
                relevance="0.95",
                age="61",
                text=(
                    "Full-time employees receive 28 days of paid annual leave per calendar year. Up to 5 unused days "
                    "may be carried over and must be taken by 31 March. Part-time employees receive leave in "
                    "proportion to their contracted hours."
                ),
            ),
        ),
    ),
}
"""The examples by name. The page's URL contains the name."""
