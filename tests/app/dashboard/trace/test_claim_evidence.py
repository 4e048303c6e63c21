"""Claims with their evidence and differing numbers."""

from app.dashboard.trace.claim_evidence import SentenceReader


def test_claim_shows_the_differing_number_and_the_documents() -> None:
    document = {"position": 0, "document_id": "d", "title": "Manual", "source": None, "kept": True}
    text = "A descaling cycle takes 25 minutes."
    said = "A descaling cycle takes 45 minutes."
    claim = {
        "text": said, "label": "contradicted", "score": 0.1, "confidence": 0.9, "document_index": 0, "reason": None,
        "evidence_start": 0, "evidence_end": len(text), "evidence": text,
        "extra": {"verdict": {"claim": {"text": said}, "entailed": 0.1, "contradicted": 0.9}, "at": [5.0, 9.0]},
    }  # fmt: skip
    sentence = {
        "choice": 0, "index": 0, "label": "contradicted", "start": 0, "end": len(said), "delivered": True,
        "claims": [claim],
    }  # fmt: skip
    read = SentenceReader([{**document, "text": text}]).sentence(sentence, 1)
    (made,) = read.claims
    assert [(each.said, each.other) for each in made.numbers] == [("45 minutes", "25 minutes")]
    assert made.passage is not None
    assert (made.passage.name, made.passage.against) == ("Manual", True)
    assert (read.came_ms, read.judged_ms) == (5.0, 9.0)


def test_unsupported_parts_are_shown_unless_texts_were_not_stored() -> None:
    said = "It ends after <40> minutes."
    claim = {
        "text": said, "label": "unverifiable", "score": 0.1, "confidence": 0.9, "document_index": None, "reason": None,
        "extra": {"verdict": {"claim": {"text": said}}, "unsupported": [[14, 18, 0.97], [19, 26, 0.6]]},
    }  # fmt: skip
    sentence = {"choice": 0, "index": 0, "label": "unverifiable", "start": 7, "end": 34, "delivered": True}
    for text, expected in ((said, ["&lt;40&gt;", "minutes"]), (None, []), ("…", [])):
        (made,) = SentenceReader([]).sentence({**sentence, "claims": [{**claim, "text": text}]}, 1).claims
        assert made.unsupported == expected
