"""Reads the answer in a chat completion: its text, and the probabilities of its tokens if the server returns them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite
from typing import Any

from judges.cross_encoder.services.pair_service import UnreadableAnswerError

_MARKS = " \t\n\"'`*.:,▁Ġ"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerToken:
    """A token of the answer, with its probability and the most likely alternatives."""

    text: str
    probability: float
    alternatives: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """The answer. ``tokens`` is empty if the server returns no log-probabilities."""

    text: str
    tokens: Sequence[AnswerToken]
    prompt_tokens: int
    completion_tokens: int

    def probability_of(self, word: str) -> float:
        """Find the last token that is the beginning of ``word``, ignoring case, and return its probability. Return 1 if
        there is no such token."""
        for token in reversed(self.tokens):
            text = token.text.strip(_MARKS).upper()
            if text and word.startswith(text):
                return token.probability
        return 1.0


def read_chat_answer(answer: Any) -> ChatAnswer:
    """Parse a chat completion. Raises UnreadableAnswerError."""
    try:
        choice = answer["choices"][0]
        text = choice["message"]["content"]
    except (TypeError, LookupError):
        raise UnreadableAnswerError("the response is not a chat completion") from None
    if not isinstance(text, str):
        raise UnreadableAnswerError("the chat completion has no text")
    usage = answer.get("usage")
    return ChatAnswer(
        text=text,
        tokens=_tokens(choice.get("logprobs")),
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def word_probability(answer: ChatAnswer, word: str, other: str, *, normalised: bool) -> float:
    """Return the probability that the answer is ``word`` rather than ``other``. It is taken from the first token that
    is one of the two words, ignoring case. If the server returns no log-probabilities, the result is 1 or 0.
    ``normalised`` assumes that no third answer is possible.

    Raises UnreadableAnswerError if the answer is neither.
    """
    for token in answer.tokens:
        if _word(token.text) in (word, other):
            chances = token.alternatives or [(token.text, token.probability)]
            of_word = sum(chance for text, chance in chances if _word(text) == word)
            of_other = sum(chance for text, chance in chances if _word(text) == other)
            total = of_word + of_other if normalised else 1.0
            return min(1.0, of_word / total) if total > 0 else 0.0
    for said in answer.text.replace("<", " <").replace(">", "> ").split():
        if _word(said) in (word, other):
            return 1.0 if _word(said) == word else 0.0
    raise UnreadableAnswerError(f"the answer is neither {word!r} nor {other!r}")


def _word(text: str) -> str:
    return text.strip(_MARKS).casefold()


def _tokens(logprobs: Any) -> Sequence[AnswerToken]:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return ()
    tokens = []
    for one in content:
        if (read := _entry(one)) is None:
            return ()
        alternatives = one.get("top_logprobs")
        found = [_entry(each) for each in alternatives] if isinstance(alternatives, list) else []
        tokens.append(
            AnswerToken(text=read[0], probability=read[1], alternatives=[each for each in found if each is not None])
        )
    return tokens


def _entry(entry: Any) -> tuple[str, float] | None:
    if not isinstance(entry, Mapping):
        return None
    text, logprob = entry.get("token"), entry.get("logprob")
    if not isinstance(text, str) or isinstance(logprob, bool) or not isinstance(logprob, int | float):
        return None
    return (text, min(1.0, exp(logprob))) if isfinite(logprob) else (text, 0.0)


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and value >= 0 else 0
