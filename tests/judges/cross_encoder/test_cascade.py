import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from judges.call_recording import record_call, recording
from judges.checker import GroundingChecker
from judges.cross_encoder import cascade as module
from judges.cross_encoder import open_scorer, spec_languages, spec_stages
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.cascade import Band, CascadeScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.features import CascadeFeatures, PublishedThresholdFeatures, combine
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeUnavailableError, JudgeUnreachableError
from judges.types import Chunk, EvidenceWindows, Label, Probabilities

pytestmark = pytest.mark.anyio

Pair = tuple[str, str]


@dataclass(eq=False)
class Judge:
    """Scores claims from a table. ``start_error`` is raised by ``start``, ``broken`` by ``score``. At the default
    ``threshold``, policies see its scores unchanged."""

    name: str
    scores: Mapping[str, float] = field(default_factory=dict)
    start_error: JudgeError | None = None
    broken: JudgeError | None = None
    fuses: bool = False
    max_tokens: int = 100
    languages: frozenset[str] | None = None
    threshold: float | None = 0.7
    concurrency: int = 1
    asked: list[Pair] = field(default_factory=list)
    starts: int = 0
    closed: bool = False

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def start(self) -> None:
        self.starts += 1
        if self.start_error is not None:
            raise self.start_error

    async def score(self, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
        self.asked.extend(pairs)
        if self.broken is not None:
            raise self.broken
        record_call(LlmCall(mode="judge", model=self.name, outcome="ok"))
        return [self._score(*pair) for pair in pairs]

    def _score(self, evidence: str, claim: str) -> Probabilities:
        entailed = self.scores.get(claim, self.scores.get(evidence, 0.0))
        parts = evidence.parts if self.fuses and isinstance(evidence, EvidenceWindows) else ()
        singles = tuple(self._score(part, claim) for part in parts)
        return Probabilities(entailed, 1.0 - entailed, 0.0, parts=singles)

    async def aclose(self) -> None:
        self.closed = True


FIRST = {"sure": 0.95, "unsure": 0.5, "low": 0.4, "high": 0.8, "no": 0.05}
SECOND = {"unsure": 0.9, "low": 0.1, "high": 0.2, "sure": 0.0, "no": 1.0}
CLAIMS = list(FIRST)


async def cascade(first: Judge, second: Judge, band: Band | None = None) -> CascadeScorer:
    scorer = CascadeScorer(first, second, band or Band())
    await scorer.start()
    return scorer


def entailed(scores: Sequence[Probabilities]) -> list[float]:
    return [score.entailed for score in scores]


# Who decides


async def test_second_judge_decides_only_inside_the_band() -> None:
    second = Judge("b", SECOND)
    scorer = await cascade(Judge("a", FIRST), second)
    assert entailed(await scorer.score([("e", claim) for claim in CLAIMS])) == [0.95, 0.9, 0.1, 0.2, 0.05]
    assert second.asked == [("e", "unsure"), ("e", "low"), ("e", "high")]
    assert scorer.name == "a then b if 0.4..0.8"
    assert scorer.fault is None


async def test_band_is_configurable() -> None:
    second = Judge("b", SECOND)
    scorer = await cascade(Judge("a", FIRST), second, Band(low=0.0, high=0.4))
    await scorer.score([("e", claim) for claim in CLAIMS])
    assert [claim for _, claim in second.asked] == ["low", "no"]


def test_certain_contradiction_is_not_uncertain() -> None:
    assert Band().contains(Probabilities(0.4, 0.0, 0.6))
    assert not Band(low=0.1, high=0.6).contains(Probabilities(0.2, 0.1, 0.7))


async def test_cascade_continues_while_judges_are_uncertain() -> None:
    first, second, third = (
        Judge("a", {"x": 0.5, "y": 0.5}),
        Judge("b", {"x": 0.5, "y": 0.9}),
        Judge("c", {"x": 0.1}),
    )
    scorer = CascadeScorer(CascadeScorer(first, second, Band()), third, Band(low=0.4, high=0.6))
    await scorer.start()
    assert entailed(await scorer.score([("e", "x"), ("e", "y")])) == [0.1, 0.9]
    assert third.asked == [("e", "x")]


# Windows


async def test_attributed_windows_are_read_together_by_the_second_judge() -> None:
    windows = EvidenceWindows(["one", "two"])
    first = Judge("a", {"one": 0.1, "two": 0.6, "one\ntwo": 0.5}, fuses=True)
    second = Judge("b", {"one\ntwo": 0.9})
    scorer = await cascade(first, second)
    assert scorer.fuses
    (score,) = await scorer.score([(windows, "claim")])
    assert (score.entailed, entailed(score.parts)) == (0.9, [0.1, 0.6])
    assert second.asked == [("one\ntwo", "claim")]
    assert type(second.asked[0][0]) is str


async def test_windows_too_long_for_the_second_judge_are_read_separately() -> None:
    windows = EvidenceWindows(["one " * 60, "two " * 60])
    first = Judge("a", {str(windows): 0.5}, fuses=True)
    second = Judge("b", {windows.parts[0]: 0.2, windows.parts[1]: 0.8})
    (score,) = await (await cascade(first, second)).score([(windows, "claim")])
    assert (score.entailed, entailed(score.parts)) == (0.8, [0.2, 0.8])


async def test_attributing_second_judge_gets_the_windows_unchanged() -> None:
    windows = EvidenceWindows(["one", "two"])
    first = Judge("a", {"one\ntwo": 0.5}, fuses=True)
    second = Judge("b", {"one\ntwo": 0.9, "one": 0.9, "two": 0.0}, fuses=True)
    (score,) = await (await cascade(first, second)).score([(windows, "claim")])
    assert (score.entailed, entailed(score.parts)) == (0.9, [0.9, 0.0])


async def test_every_window_has_a_score_if_only_the_second_judge_answers() -> None:
    windows = EvidenceWindows(["one", "two"])
    first = Judge("a", fuses=True, broken=JudgeError("broken"))
    second = Judge("b", {"one": 0.2, "two": 0.8})
    (score,) = await (await cascade(first, second)).score([(windows, "claim")])
    assert (score.entailed, entailed(score.parts)) == (0.8, [0.2, 0.8])


# Failures


async def test_first_judge_decides_while_the_second_fails(caplog: pytest.LogCaptureFixture) -> None:
    scorer = await cascade(Judge("a", FIRST), Judge("b", broken=JudgeError("b: the service returned 500")))
    assert entailed(await scorer.score([("e", claim) for claim in CLAIMS])) == list(FIRST.values())
    assert (
        "the second judge of the cascade failed, so the first one decides: b: the service returned 500" in caplog.text
    )


async def test_second_judge_decides_while_the_first_fails() -> None:
    scorer = await cascade(Judge("a", broken=JudgeError("broken")), Judge("b", SECOND))
    assert entailed(await scorer.score([("e", claim) for claim in CLAIMS])) == [SECOND[claim] for claim in CLAIMS]


async def test_failure_of_both_judges_is_an_error() -> None:
    scorer = await cascade(Judge("a", broken=JudgeError("a: x")), Judge("b", broken=JudgeError("b: y")))
    with pytest.raises(JudgeError, match="b: y"):
        await scorer.score([("e", "sure")])


@pytest.mark.parametrize("broken", [0, 1])
async def test_cascade_starts_with_the_available_judge(broken: int, caplog: pytest.LogCaptureFixture) -> None:
    judges = [Judge("a", FIRST), Judge("b", SECOND)]
    judges[broken].start_error = JudgeUnavailableError("needs an extra")
    other = judges[1 - broken]
    scorer = await cascade(*judges)
    assert scorer.name == other.name
    assert "a judge of the cascade is unavailable: needs an extra" in caplog.text
    assert scorer.fault == "needs an extra"
    assert entailed(await scorer.score([("e", "unsure")])) == [other.scores["unsure"]]


async def test_unavailable_judge_is_retried_and_an_unusable_one_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    second = Judge("b", SECOND, start_error=JudgeUnreachableError("no key"))
    scorer = await cascade(Judge("a", FIRST), second)
    for _ in range(2):
        assert entailed(await scorer.score([("e", "unsure")])) == [0.5]
    assert second.starts == 3
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 1
    second.start_error = None
    assert entailed(await scorer.score([("e", "unsure")])) == [0.9]
    broken = Judge("b", SECOND, start_error=JudgeUnavailableError("needs an extra"))
    scorer = await cascade(Judge("a", FIRST), broken)
    await scorer.score([("e", "unsure")])
    assert broken.starts == 1


@pytest.mark.parametrize("kinds", [(JudgeUnreachableError, JudgeUnavailableError), (JudgeUnavailableError,) * 2])
async def test_cascade_without_any_judge_does_not_start(kinds: Sequence[Callable[[str], JudgeError]]) -> None:
    scorer = CascadeScorer(
        *(Judge(name, start_error=kind(name)) for name, kind in zip("ab", kinds, strict=True)), Band()
    )
    expected = JudgeUnreachableError if JudgeUnreachableError in kinds else JudgeUnavailableError
    with pytest.raises(expected, match="a; b"):
        await scorer.start()
    with pytest.raises(JudgeError):
        await scorer.score([("e", "sure")])


async def test_both_judges_are_closed_and_stay_closed() -> None:
    judges = Judge("a"), Judge("b")
    scorer = await cascade(*judges)
    await scorer.aclose()
    assert [judge.closed for judge in judges] == [True, True]
    with pytest.raises(JudgeUnavailableError, match="closed"):
        await scorer.start()


# Wrappers


async def test_each_judge_has_its_own_queue_and_cache() -> None:
    def wrap(judge: object) -> CachingScorer:
        return CachingScorer(BatchingScorer(judge), max_bytes=100_000)  # type: ignore[arg-type]  # a test double

    first, second = Judge("a", FIRST), Judge("b", SECOND, concurrency=4)
    scorer = CascadeScorer(first, second, Band()).with_stages(wrap)
    await scorer.start()
    calls: list[LlmCall] = []
    with recording(calls.append):
        for _ in range(2):
            scores = await asyncio.gather(*(scorer.score([("e", claim)]) for claim in CLAIMS))
            assert [score.entailed for (score,) in scores] == [0.95, 0.9, 0.1, 0.2, 0.05]
    assert len(first.asked) == 5
    assert len(second.asked) == 3
    assert {call.model for call in calls} == {"a", "b"}
    await scorer.aclose()


async def test_costs_are_recorded_for_the_requesting_call() -> None:
    judge = Judge("a", FIRST)
    judge.batch_pairs = 1  # type: ignore[attr-defined]  # optional in the protocol
    scorer = BatchingScorer(judge)
    await scorer.start()

    async def ask(claim: str) -> int:
        calls: list[LlmCall] = []
        with recording(calls.append):
            await scorer.score([("e", claim)] * 2)
        return len(calls)

    assert await asyncio.gather(*(ask(claim) for claim in CLAIMS)) == [2] * 5
    assert scorer.batches == 10
    await scorer.aclose()


async def test_score_missing_the_deciding_judge_is_not_cached() -> None:
    """As the score of a cascade that is served elsewhere: the gateway's cache must not keep what another request could
    get better."""
    first, second = Judge("a", FIRST), Judge("b", SECOND, broken=JudgeError("b is down"))
    cache = CachingScorer(await cascade(first, second), max_bytes=1 << 20)
    pairs = [("e", claim) for claim in CLAIMS]
    assert [score.provisional for score in await cache.score(pairs)] == [False, True, True, True, False]
    before = len(cache)
    second.broken = None
    scores = await cache.score(pairs)
    assert not any(score.provisional for score in scores)
    assert (before, len(cache)) == (2, 5)


async def test_nested_cascade_keeps_the_scales_of_its_judges() -> None:
    inner = CascadeScorer(Judge("b", {"c": 0.5}, threshold=0.5), Judge("c", {"c": 0.9}, threshold=0.6), Band())
    scorer = await cascade(Judge("a", {"c": 0.5}), inner)
    (score,) = await scorer.score([("e", "c")])
    assert (score.entailed, scorer.stage_thresholds[score.stage]) == (0.9, 0.6)


async def test_languages_are_those_that_both_judges_know() -> None:
    every = Judge("a")
    some, others = Judge("b", languages=frozenset({"en", "de"})), Judge("c", languages=frozenset({"en", "fr"}))
    assert CascadeScorer(every, every, Band()).languages is None
    assert CascadeScorer(every, some, Band()).languages == {"en", "de"}
    assert CascadeScorer(others, some, Band()).languages == {"en"}


# The spec


def test_cascade_is_one_setting() -> None:
    spec = "embedded then preset:vectara?price=0.001 if uncertain 0.2..0.8 then http://judge:8080 if uncertain"
    scorer = open_scorer(spec, threads=1)
    assert isinstance(scorer, CascadeScorer)
    assert scorer.name == "embedded then preset:vectara if 0.2..0.8 then http:judge:8080 if 0.4..0.8"
    assert [stage.kind for stage in spec_stages(spec)] == ["embedded", "preset", "http"]


def test_languages_of_a_cascade_are_those_of_all_its_judges() -> None:
    azure = "preset:azure-groundedness?endpoint=https://a"
    assert spec_languages(f"preset:vectara then {azure} if uncertain") == {"en"}
    assert spec_languages("preset:vectara then http://judge if uncertain") is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("embedded then preset:vectara", "expected '<judge> then <judge> if uncertain', or"),
        ("embedded then preset:vectara if unsure", "expected '<judge> then <judge> if uncertain'"),
        ("embedded then preset:vectara if uncertain 0.7..0.3", r"the band must be within 0\.\.1, lower limit first"),
        ("embedded then preset:vectara if uncertain 0..1.2", r"the band must be within 0\.\.1"),
        ("embedded then preset:vectara if uncertain 0.1.1..0.9", "expected '<judge> then"),
        ("embedded then preset:vektara if uncertain", "unknown preset 'vektara': did you mean 'vectara'"),
        ("embedded then none if uncertain", "'none' cannot be part of a cascade"),
        ("none then embedded if uncertain", "'none' cannot be part of a cascade"),
        ("embedded then hhem-2.1-open if uncertain", r"did you mean 'preset:hhem-2\.1-open'\?"),
        ("embedded then preset:vectara?languages=de if uncertain", "its judges have no language in common"),
    ],
)
def test_invalid_cascade_error_says_what_is_expected(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as fault:
        open_scorer(spec)
    assert "\n" not in str(fault.value)


# Scales


async def test_each_score_is_read_on_the_scale_of_its_judge() -> None:
    """A preset calls 0.55 supported, and the embedded model's scores are calibrated: in one cascade, both hold."""
    first = Judge("a", {"The lake is deep.": 0.5, "The lake is blue.": 0.95}, threshold=None)
    second = Judge("b", {"The lake is deep.": 0.55, "The lake is blue.": 0.95}, threshold=0.5)
    third = Judge("c", {"The lake is blue.": 0.95}, threshold=None)
    scorer = CascadeScorer(CascadeScorer(first, second, Band(low=0.0, high=1.0)), third, Band(low=0.9, high=1.0))
    assert scorer.stage_thresholds == (None, 0.5, None)
    await scorer.start()
    scores = await scorer.score([("e", "The lake is deep."), ("e", "The lake is blue.")])
    assert [score.stage for score in scores] == [1, 2]
    features = CascadeFeatures(scorer.stage_thresholds)
    evidence = "The lake has depth, and its colour is that of the sky."
    for score, claim, alone in zip(
        scores,
        ("The lake is deep.", "The lake is blue."),
        (PublishedThresholdFeatures(0.5).combine, combine),
        strict=True,
    ):
        assert features.combine(evidence, claim, score) == alone(evidence, claim, score)
    assert features.combine(evidence, "The lake is deep.", scores[0]).probabilities.entailed > 0.7


async def test_windows_read_by_the_second_judge_are_on_its_scale() -> None:
    windows = EvidenceWindows(["one", "two"])
    (score,) = await (await cascade(Judge("a", fuses=True, broken=JudgeError("x")), Judge("b", {"two": 0.8}))).score(
        [(windows, "claim")]
    )
    assert (score.stage, [part.stage for part in score.parts]) == (1, [1, 1])
    (score,) = await (await cascade(Judge("a", {"one\ntwo": 0.5}, fuses=True), Judge("b"))).score([(windows, "claim")])
    assert (score.stage, [part.stage for part in score.parts]) == (1, [0, 0])


async def test_checker_reads_a_cascade_like_each_judge_alone() -> None:
    """At its threshold, a preset's verdict is the same alone and at the end of a cascade."""
    text, document = "The quick ferry goes north.", Chunk(id="d", text="Boats travel to the northern shore swiftly.")
    second = Judge("b", {text: 0.56}, threshold=0.5)
    for scorer in (second, CascadeScorer(Judge("a", {text: 0.5}), second, Band())):
        checker = GroundingChecker(scorer)
        evidence = await checker.prepare([document])
        reply = checker.reply(evidence, thresholds=Thresholds())
        (sentence,) = [*reply.push(text), *reply.flush()]
        assert (await reply.check(sentence)).label is Label.SUPPORTED


async def test_band_applies_to_calibrated_probabilities() -> None:
    """0.45 is uncertain for a judge that calls 0.5 supported, and certain for one that calls 0.1 supported; a number
    that differs is certain whatever the model says."""
    evidence = "The deposit is 600 euros."
    for threshold, claim, expected in (
        (0.5, "A deposit must be paid.", 0.9),
        (0.1, "A deposit must be paid.", 0.45),
        (0.5, "The deposit is 700 euros.", 0.45),
    ):
        scorer = await cascade(Judge("a", {claim: 0.45}, threshold=threshold), Judge("b", {claim: 0.9}))
        assert entailed(await scorer.score([(evidence, claim)])) == [expected]


async def test_windows_are_calibrated_together() -> None:
    windows = EvidenceWindows(["The deposit is 600 euros.", "It is due in May."])
    for claim, asked in (("A deposit must be paid.", 1), ("The deposit is 700 euros.", 0)):
        second = Judge("b")
        scorer = await cascade(Judge("a", {claim: 0.5}, fuses=True), second)
        await scorer.score([(windows, claim)])
        assert len(second.asked) == asked


async def test_checker_reports_a_missing_judge_and_judges_without_it() -> None:
    second = Judge("b", start_error=JudgeUnavailableError("b needs an extra"))
    checker = GroundingChecker(CascadeScorer(Judge("a"), second, Band()))
    await checker.start()
    assert (checker.available, checker.fault, checker.error, checker.name) == (True, "b needs an extra", None, "a")


async def test_first_judge_decides_if_the_second_is_too_slow(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Judge):
        async def score(self, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
            await asyncio.Event().wait()
            raise AssertionError

    scorer = CascadeScorer(Judge("a", FIRST), Slow("b"), Band(), patience_s=0.05).with_stages(lambda judge: judge)
    await scorer.start()
    assert entailed(await scorer.score([("e", claim) for claim in CLAIMS])) == list(FIRST.values())
    assert caplog.text.count("b: no response within 0.05 s") == 1
