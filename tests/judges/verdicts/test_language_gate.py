import pytest

from judges.evidence.index import EvidenceIndex
from judges.evidence.windowing import DocumentCutter, build_index
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Chunk, Claim, Label, Span
from judges.verdicts.language_gate import LanguageGate

GERMAN = "Die Kaution beträgt zwei Monatsmieten. Sie wird nach dem Auszug zurückgezahlt. Haustiere sind nicht erlaubt."
ENGLISH = "The deposit is two months' rent. Pets are not allowed."


def index(*texts: str) -> EvidenceIndex:
    chunks = [Chunk(id=f"d{place}", text=text, source="s") for place, text in enumerate(texts)]
    return build_index(
        chunks, cutter=DocumentCutter(IncrementalSplitter), count=lambda text: len(text.split()), max_tokens=200
    )


def claim(text: str, context: str = "") -> Claim:
    return Claim(text=text, span=Span(0, len(text)), sentence_index=0, context=context)


def test_claim_in_a_known_language_is_left_to_the_model() -> None:
    known = LanguageGate({"en"}, index(ENGLISH))
    assert known.admits(claim("Pets are not allowed."), "")
    assert known.admits(claim("Volkswagen AG, Wolfsburg."), "The deposit is high.")


def test_claim_in_another_language_is_unverifiable_for_that_reason() -> None:
    known = LanguageGate({"en"}, index(ENGLISH))
    foreign = claim("Haustiere sind in der Wohnung nicht erlaubt.")
    assert not known.admits(foreign, "")
    verdict = known.judge_without_model(foreign)
    assert (verdict.label, verdict.reason, verdict.entailed) == (Label.UNVERIFIABLE, "language", 0.0)


def test_documents_and_context_decide_the_language_of_a_short_claim() -> None:
    short = claim("Die Kaution beträgt 900 €.")
    assert LanguageGate({"en"}, index(ENGLISH)).admits(short, "")
    assert not LanguageGate({"en"}, index(GERMAN)).admits(short, "")
    assert not LanguageGate({"en"}, index(ENGLISH)).admits(short, "Sie wird nach dem Auszug zurückgezahlt.")
    assert LanguageGate({"en"}, index(GERMAN)).admits(short, "The flat is not let to pets.")


def test_claim_repeating_the_evidence_is_supported() -> None:
    verdict = LanguageGate({"en"}, index(ENGLISH, GERMAN)).judge_without_model(claim("Haustiere sind  nicht erlaubt."))
    assert (verdict.label, verdict.reason) == (Label.SUPPORTED, None)
    assert verdict.best_source is not None
    assert verdict.best_source.document_id == "d1"
    assert verdict.support == {1: verdict.entailed}


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        ("Es stimmt nicht, dass Haustiere sind nicht erlaubt ist.", "Haustiere sind nicht erlaubt."),
        ("Haustiere sind nicht erlaubt, wenn sie laut sind.", "Haustiere sind nicht erlaubt."),
        ("押金不是两个月的租金。", "两个月的租金。"),
    ],
)
def test_part_of_a_sentence_is_not_the_sentence(evidence: str, text: str) -> None:
    assert LanguageGate({"en"}, index(evidence)).judge_without_model(claim(text)).reason == "language"


def test_dependent_claim_is_not_supported_by_its_words_alone() -> None:
    leaning = claim("Sie wird nach dem Auszug zurückgezahlt.", context="Die Miete beträgt 900 €.")
    assert LanguageGate({"en"}, index(GERMAN)).judge_without_model(leaning).reason == "language"


def test_scripts_without_spaces_are_compared_likewise() -> None:
    known = LanguageGate({"en"}, index("押金为两个月的租金。宠物不允许入内。"))
    assert known.judge_without_model(claim("押金为两个月的租金。")).label is Label.SUPPORTED
    assert known.judge_without_model(claim("宠物允许入内。")).reason == "language"


@pytest.mark.parametrize(
    ("evidence", "text", "said"),
    [
        ("Die Kaution beträgt 1.250,50 Euro.", "Die Kaution beträgt 1,25 Euro.", "1.250,50"),
        ("Le parc ferme à 20 heures.", "Le parc ferme à 22 heures.", "20 heures"),
        ("El plazo termina el 15 de mayo.", "El plazo termina el 15 de marzo.", "15 de mayo"),
        ("プールは18時に閉まります。", "プールは20時に閉まります。", "18"),
    ],
)
def test_different_number_is_contradicted_in_any_language(evidence: str, text: str, said: str) -> None:
    verdict = LanguageGate({"en"}, index(evidence)).judge_without_model(claim(text))
    assert (verdict.label, verdict.reason) == (Label.CONTRADICTED, None)
    assert verdict.contradicting_source is not None
    assert said in (verdict.explanation or "")


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        ("I cani non sono ammessi nel parco.", "I cani sono ammessi nel parco."),
        ("食堂車はありません。", "食堂車はあります。"),
        ("Sin reserva no se puede entrar.", "Con reserva se puede entrar."),
        ("Alternative Routen sind angeblich gesperrt.", "Alternative Routen sind gesperrt."),
        ("Es gibt keine Kaution.", "Es gibt eine Kaution."),
    ],
)
def test_nearly_the_same_words_are_no_support(evidence: str, text: str) -> None:
    assert LanguageGate({"en"}, index(evidence)).judge_without_model(claim(text)).label is Label.UNVERIFIABLE


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        ("Der Vertrag verlängert sich nicht automatisch.", "Der Vertrag verlängert sich automatisch."),
        ("Le musée n'est pas ouvert le lundi.", "Le musée est ouvert le lundi."),
        ("Los perros no pueden entrar en el parque.", "Los perros pueden entrar en el parque."),
    ],
)
def test_opposite_is_contradicted_if_words_of_denial_are_known(evidence: str, text: str) -> None:
    assert LanguageGate({"en"}, index(evidence)).judge_without_model(claim(text)).label is Label.CONTRADICTED
    assert LanguageGate({"en"}, index(text)).judge_without_model(claim(evidence)).label is not Label.SUPPORTED


def test_full_stop_within_quotation_marks_ends_a_sentence() -> None:
    text = "Le règlement précise : « Les chiens sont admis en laisse. »"
    assert (
        LanguageGate({"en"}, index(f"{text} Le parc ferme à 20 heures.")).judge_without_model(claim(text)).label
        is Label.SUPPORTED
    )
