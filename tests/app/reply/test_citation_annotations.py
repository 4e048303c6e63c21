"""Which sentence each citation of a reply belongs to."""

from dataclasses import replace

from msgspec import structs

from app.protocols.common.stream_events import UpstreamCitation
from app.reply.citation_annotations import cite_reply, cite_sentence, cited_by_upstream
from app.reply.grounding_object import JudgedSentence
from judges.types import Chunk, Claim, ClaimVerdict, Label, Sentence, SentenceVerdict, Span
from policies.citations.document_names import DocumentNames

NAMES = DocumentNames(
    [Chunk(id="d1", text="…", source="hr.pdf"), Chunk(id="d2", text="…", url="https://docs.test/faq", title="FAQ")]
)


def entry(
    text: str, start: int, index: int, *, offset: int | None, claims: bool = True, code: bool = False
) -> JudgedSentence:
    span = Span(start, start + len(text))
    sentence = Sentence(index=index, text=text, span=span, plain=text.strip(), in_code=code)
    claim = ClaimVerdict(
        claim=Claim(text=text.strip(), span=span, sentence_index=index),
        label=Label.SUPPORTED,
        entailed=0.9,
        contradicted=0.0,
    )
    verdict = SentenceVerdict(sentence=sentence, label=Label.SUPPORTED, claims=(claim,) if claims else ())
    return JudgedSentence(verdict=verdict, offset=offset, begin=verdict.sentence.span.start)


def entries(*texts: str, left_out: frozenset[int] = frozenset()) -> tuple[list[JudgedSentence], str]:
    """The sentences of a reply, and the delivered part of each."""
    made: list[JudgedSentence] = []
    start, delivered = 0, ""
    for index, text in enumerate(texts):
        made.append(entry(text, start, index, offset=None if index in left_out else len(delivered)))
        start += len(text)
        delivered += "" if index in left_out else text
    return made, delivered


def cited(made: list[JudgedSentence]) -> list[list[int | None]]:
    return [[citation.document_index for citation in one.citations] for one in made]


def test_marker_after_a_full_stop_belongs_to_the_sentence_before_it() -> None:
    made, text = entries("Leave is 25 days. ", "[1][2] Sick pay lasts six weeks. ", "Bicycles may be parked [2].")
    cite_reply(made, text, NAMES)
    assert cited(made) == [[0, 1], [], [1]]


def test_removed_sentence_loses_its_citations() -> None:
    made, text = entries("Leave is 25 days [1]. ", "It is 40 days [2]. ", "Yes [1].", left_out=frozenset({1}))
    cite_reply(made, text, NAMES)
    assert cited(made) == [[0], [], [0]]
    assert made[2].citations[0].sentence_index == 2


def test_footnote_defines_its_number_and_counts_where_it_is_used() -> None:
    made, text = entries("Leave is 25 days.[^1]\n\n", "[^1]: FAQ\n")
    cite_reply(made, text, NAMES)
    assert cited(made) == [[1], [1]]
    assert made[1].citations[0].sentence_index is None, "it stands for no claim there"


def test_undelivered_text_has_no_citations() -> None:
    cite_reply([], "", NAMES)
    made, text = entries("Leave is 25 days [1].", left_out=frozenset({0}))
    cite_reply(made, text, NAMES)
    assert cited(made) == [[]]


def test_citation_covers_its_sentence() -> None:
    sentence = entry("Leave is 25 days [1].", 100, 4, offset=0).verdict.sentence
    assert [(c.document_index, c.sentence_index) for c in cite_sentence(sentence, NAMES)] == [(0, 4)]
    code = entry("x = leave[1]\n", 0, 0, offset=0, code=True).verdict.sentence
    assert cite_sentence(code, NAMES) == []


def test_upstream_annotations_are_assigned_to_sentences() -> None:
    made, _ = entries("Leave is 25 days. ", "Sick pay lasts six weeks. ", "(See the notes.)")
    made[2].verdict = SentenceVerdict(sentence=made[2].verdict.sentence, label=Label.NOT_A_CLAIM)
    given = [
        UpstreamCitation(choice=0, place=3, marker="https://docs.test/faq", names=["https://docs.test/faq"]),
        UpstreamCitation(choice=0, place=44, marker="url_citation", names=["https://gone.test", "HR.PDF"]),
        UpstreamCitation(choice=0, place=20, marker="https://gone.test", names=["https://gone.test"]),
        UpstreamCitation(choice=0, place=None, marker="d1", names=["d1"]),
        UpstreamCitation(choice=0, place=20, marker="document 7", document=7),
        UpstreamCitation(choice=0, place=20, marker="document 9", document=9),
    ]
    found = cited_by_upstream(given, made, NAMES, positions=[4, 7])
    assert [(c.document_index, c.sentence_index) for c in found] == [
        (1, 0),
        (0, 1),  # the position is after it, where nothing is claimed
        (None, 1),
        (0, None),
        (1, 1),
        (None, 1),
    ]
    assert cited_by_upstream(given[:1], [], NAMES, positions=[4, 7]) == []


def test_citation_of_a_shared_name_is_attributed_to_the_supporting_document() -> None:
    names = DocumentNames([Chunk(id=one, text="…", source="p.pdf") for one in ("a", "b", "c")])
    made, text = entries("Leave is 25 days [p.pdf]. ", "Sick pay lasts six weeks [p.pdf].")
    for judged, document in zip(made, (2, 1), strict=True):
        claims = tuple(replace(claim, support={document: 0.9}) for claim in judged.verdict.claims)
        judged.verdict = structs.replace(judged.verdict, claims=claims)
    cite_reply(made, text, names)
    assert cited(made) == [[2], [1]]
    noted = UpstreamCitation(choice=0, place=3, marker="p.pdf", names=("p.pdf",))
    assert [each.documents for each in cited_by_upstream([noted], made, names, [0, 1, 2])] == [(2, 0, 1)]
