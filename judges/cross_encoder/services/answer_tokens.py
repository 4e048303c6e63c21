"""Reads the answer in a chat completion: its text, and the probabilities of its tokens if the server returns them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, Final

from judges.cross_encoder.services.pair_service import UnreadableAnswerError, usage_count

_MARKS = " \t\n\"'`*.:,▁Ġ"
_TAG: Final = re.compile(r"<[^<>]*>")
_MAX_CHARS: Final = 20_000
"""Maximum length of an answer, which is several times the length of 600 tokens."""
_MAX_LOGPROB: Final = 0.001
_MIN_LOGPROB: Final = -1_000.0
"""Below this, a probability is 0. Servers write negative infinity in different ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerToken:
    """A token of the answer, with its probability and the most likely alternatives."""

    text: str
    probability: float
    alternatives: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """The answer. ``complete`` is False if it was cut off. ``tokens`` is empty if the server returns no
    log-probabilities."""

    text: str
    complete: bool
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
    """Parse a chat completion. Raises UnreadableAnswerError if there is none, or if the model has refused."""
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        text = message["content"]
    except (TypeError, LookupError):
        raise UnreadableAnswerError("the response is not a chat completion") from None
    if not isinstance(text, str) or message.get("refusal"):
        raise UnreadableAnswerError("the chat completion has no text")
    if len(text) > _MAX_CHARS:
        raise UnreadableAnswerError(f"the answer is longer than {_MAX_CHARS} characters")
    usage = answer.get("usage")
    return ChatAnswer(
        text=text,
        complete=choice.get("finish_reason") == "stop",
        tokens=_tokens(choice.get("logprobs")),
        prompt_tokens=usage_count(usage, "prompt_tokens"),
        completion_tokens=usage_count(usage, "completion_tokens"),
    )


def word_probability(answer: ChatAnswer, word: str, other: str, *, normalised: bool) -> float:
    """Return the probability that the answer is ``word`` rather than ``other``, ignoring case. It is the probability of
    the answer's first word; tags don't count as words. If the server returns no log-probabilities, the result is 1 or
    0. With ``normalised``, no third answer is assumed to be possible.

    Raises UnreadableAnswerError if the first word is neither, because the words may also occur in an explanation.
    """
    words = map(_word, _TAG.sub(" ", answer.text).split())
    said = next((each for each in words if each), "")
    if said not in (word, other):
        raise UnreadableAnswerError(f"the answer is neither {word!r} nor {other!r}")
    for token in answer.tokens:
        if _word(token.text) == said:
            chances = token.alternatives or [(token.text, token.probability)]
            of_word = sum(chance for text, chance in chances if _word(text) == word)
            of_other = sum(chance for text, chance in chances if _word(text) == other)
            total = of_word + of_other if normalised else 1.0
            return min(1.0, of_word / total) if total > 0 else 0.0
    return 1.0 if said == word else 0.0


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
    if not logprob <= _MAX_LOGPROB:
        return None
    return text, min(1.0, exp(logprob)) if logprob > _MIN_LOGPROB else 0.0
