"""The handwritten claims for training: how they are read, and the properties that keep them from teaching something
else."""

import json
from collections import Counter
from pathlib import Path

import pytest

from judges.training.data import written_claims as written
from judges.training.data.datasets import WRITTEN, Group, Row, Target

PREMISE = "The lock at Ostrava opens at six."


def write(folder: Path, *lines: object) -> Path:
    (folder / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def test_claims_have_a_passage_of_the_pool_or_their_own(tmp_path: Path) -> None:
    pool = [Group(PREMISE, (Row("x", Target.ENTAILED, "BEGIN"),), "BEGIN")]
    folder = write(
        tmp_path,
        {"digest": written.digest(PREMISE), "entailed": ["It opens at six."], "contradicted": ["It opens at nine."]},
        {"digest": written.digest("gone"), "entailed": ["Nobody knows of what."]},
        {"premise": "The gate is red.", "neutral": ["The gate is old.", "The gate is new."]},
    )
    entailed, contradicted, neutral = Target.ENTAILED, Target.CONTRADICTED, Target.NEUTRAL
    assert written.load(pool, folder) == [
        Group(
            PREMISE,
            (Row("It opens at six.", entailed, WRITTEN), Row("It opens at nine.", contradicted, WRITTEN)),
            WRITTEN,
        ),
        Group(
            "The gate is red.",
            (Row("The gate is old.", neutral, WRITTEN), Row("The gate is new.", neutral, WRITTEN)),
            WRITTEN,
        ),
    ]


@pytest.mark.parametrize("broken", [{"premise": "The gate is red."}, {"entailed": ["It is open."]}, {}])
def test_line_without_passage_or_claims_is_refused(tmp_path: Path, broken: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"one\.jsonl, line 1: expected a premise or a digest, and claims"):
        written.load([], write(tmp_path, broken))


def passages() -> list[dict[str, list[str]]]:
    files = written.FOLDER.rglob("*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_no_claim_has_two_labels_or_occurs_twice() -> None:
    for one in passages():
        claims = [claim for name in ("entailed", "contradicted", "neutral") for claim in one.get(name, [])]
        assert len(set(claims)) == len(claims)


def test_neither_length_nor_a_single_word_predicts_the_label() -> None:
    """Otherwise a model learns how they were written: true and other claims are about equally long, and no common word
    is much more frequent in either."""
    words: dict[bool, list[list[str]]] = {True: [], False: []}
    for one in passages():
        for name in ("entailed", "contradicted", "neutral"):
            words[name == "entailed"] += [claim.lower().rstrip(".").split() for claim in one.get(name, [])]
    lengths = {true: sum(map(len, claims)) / len(claims) for true, claims in words.items()}
    assert lengths[True] / lengths[False] == pytest.approx(1.0, abs=0.1)
    shares = {
        true: {word: count / len(claims) for word, count in Counter(w for c in claims for w in set(c)).items()}
        for true, claims in words.items()
    }
    common = {word for found in shares.values() for word, share in found.items() if share > 0.03}
    telling = {
        word: (shares[True].get(word, 0.0), shares[False].get(word, 0.0))
        for word in common
        if not 1 / 1.7 < (shares[True].get(word, 0.0) + 0.01) / (shares[False].get(word, 0.0) + 0.01) < 1.7
    }
    assert not telling


@pytest.mark.parametrize(
    "file", [written.REPLIES, written.PARAPHRASES, written.ANSWERS, written.LANGUAGES], ids=lambda file: file.stem
)
def test_evaluation_data_is_never_trained_on(file: Path) -> None:
    rows = written.measured(file)
    trained = {
        claim
        for one in sorted(written.FOLDER.rglob("*.jsonl"))
        for line in one.read_text(encoding="utf-8").splitlines()
        for name in ("entailed", "contradicted", "neutral")
        for claim in json.loads(line).get(name, ())
    }
    languages = {"de", "es", "fr", "it", "ja", "nl", "pt", "zh"}
    assert {row["source"] for row in rows} == (languages if file == written.LANGUAGES else {file.stem})
    assert {"entailed", "contradicted"} <= {row["label"] for row in rows}
    assert all(row["documents"] and all(row["documents"]) for row in rows)
    assert trained.isdisjoint(row["hypothesis"] for row in rows)
