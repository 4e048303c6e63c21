import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.text.languages.detection import is_foreign, languages_of

ENGLISH = {"en"}
CASES = json.loads((Path(__file__).parents[2] / "data" / "segmentation.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Der Antrag muss bis Ende März gestellt werden.", "de"),
        ("La demande doit être déposée avant la fin du mois de mars.", "fr"),
        ("El paciente no debe levantar peso durante una semana.", "es"),
        ("O pedido deve ser apresentado até ao fim de março.", "pt"),
        ("La domanda deve essere presentata entro la fine di marzo.", "it"),
        ("In de zomer gaat het zwembad om negen uur open.", "nl"),
        ("Ansökan ska lämnas in före slutet av mars.", "sv"),
        ("Ansøgningen skal indsendes inden udgangen af marts.", "da"),
        ("Søknaden må sendes inn etter slutten av mars.", "no"),
        ("Wniosek należy złożyć do końca marca, ale nie później.", "pl"),
        ("Žádost je třeba podat do konce března, protože není jiná.", "cs"),
        ("Başvuru mart ayının sonuna kadar yapılmalıdır.", "tr"),
        ("Hakemus on jätettävä ennen maaliskuun loppua, mutta se ei riitä.", "fi"),
        ("A kérelmet március végéig kell benyújtani.", "hu"),
        ("Cererea trebuie depusă până la sfârșitul lunii martie.", "ro"),
        ("Trẻ em dưới sáu tuổi được đi miễn phí.", "vi"),
        ("Permohonan harus diajukan sebelum akhir Maret.", "id"),
        ("Залог составляет два месяца аренды.", "ru"),
        ("Η εγγύηση ισούται με δύο μηνιαία ενοίκια.", "el"),
        ("يبلغ التأمين إيجار شهرين.", "ar"),
        ("הפיקדון שווה לשני חודשי שכירות.", "he"),
        ("जमा राशि दो महीने के किराए के बराबर है।", "hi"),
        ("敷金は家賃の二か月分です。", "ja"),
        ("押金为两个月的租金。", "zh"),
        ("보증금은 두 달치 임대료입니다.", "ko"),
        ("เงินมัดจำเท่ากับค่าเช่าสองเดือน", "th"),
        ("The deposit should have been paid before March.", "en"),
    ],
)
def test_language_of_a_plain_sentence_is_detected(text: str, language: str) -> None:
    assert language in languages_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Die Zeit reported the fall of the Berlin Wall.",
        "Volkswagen AG raised prices in Wolfsburg.",
        "El Niño raised sea temperatures in 2015.",
        "The Deutsche Bahn ICE 73 to Zürich Hauptbahnhof leaves at 9:02.",
        "La La Land won six Oscars.",
        "Les Misérables opened in 1985.",
        "Das Boot was released in 1981.",
        "The motto is 'Liberté, égalité, fraternité'.",
        "Crème brûlée contains cream, sugar and egg yolks.",
        "The word 'Schadenfreude' means joy at the misfortune of others.",
        "Juan Carlos de Borbón abdicated in 2014.",
        "An ad hoc committee, inter alia, reviewed it pro bono.",
        "University of São Paulo, Universidad de Chile, ETH Zürich",
        "Two men die in an accident.",
        "The sushi (寿司) costs 12 euros.",
        "北京 is the capital of China.",
        "The Greek letters α, β and γ denote angles.",
        "Model A: 5 kg.",
        "Ordered by: Müller GmbH & Co. KG",
        "See https://example.org/de/der/die/das and `der die das`.",
        "42",
        "",
    ],
)
def test_english_with_foreign_names_words_and_letters_is_english(text: str) -> None:
    assert not is_foreign(text, ENGLISH)
    assert not is_foreign(text, ENGLISH, "The hotel has forty rooms and it is open all year.")


def test_every_english_segmentation_case_is_english() -> None:
    texts = [text for case in CASES if int(case["id"][1:]) < 120 for text in case["sentences"]]
    assert len(texts) > 80
    assert [text for text in texts if is_foreign(text, ENGLISH)] == []


def test_ambiguous_sentence_takes_the_language_of_its_surroundings() -> None:
    short = "Die Kaution beträgt 1250 €."
    german = "Der Vertrag verlängert sich nicht von selbst."
    english = "The contract is not renewed by itself."
    assert not is_foreign(short, ENGLISH)
    assert is_foreign(short, ENGLISH, german)
    assert is_foreign(short, ENGLISH, "", german)
    assert not is_foreign(short, ENGLISH, english, german)
    assert not is_foreign("The deposit.", ENGLISH, german)
    assert is_foreign("El plazo termina el 15 de mayo.", ENGLISH, "", "El plazo de pago termina el 15 de mayo.")


def test_mixture_has_no_single_language() -> None:
    mixed = "The guests should bring their keys, und sie müssen nicht warten."
    assert languages_of(mixed) == frozenset()
    assert not is_foreign(mixed, ENGLISH)


def test_model_of_other_languages_knows_those() -> None:
    assert not is_foreign("Der Antrag muss bis Ende März gestellt werden.", {"de", "fr"})
    assert is_foreign("The application has to be made by the end of March.", {"de", "fr"})
    assert not is_foreign("押金为两个月的租金。", {"zh"})


def test_accents_alone_show_that_it_is_not_english() -> None:
    assert languages_of("Kauce činí dva měsíční nájmy.") == frozenset({"und"})


@given(st.text(max_size=200))
def test_any_text_has_an_answer(text: str) -> None:
    assert isinstance(languages_of(text), frozenset)


@given(st.text(alphabet="0123456789 .,:;-()[]%€$#*", max_size=60))
def test_text_without_letters_has_no_language(text: str) -> None:
    assert languages_of(text) == frozenset()
