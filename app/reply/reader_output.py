"""The types of a reader's outputs: content to forward, and sentences to decide on."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from app.protocols.common.stream_events import Frame, Output, TextSlice
from app.reply.choice import Choice
from judges.types import Sentence, SentenceVerdict


class Mode(StrEnum):
    """Determines when text is released. ``UNTOUCHED`` means that nothing is judged or decided, and every byte is
    forwarded unchanged."""

    UNTOUCHED = "untouched"
    HOLD = "hold"
    LIVE = "live"
    FINAL = "final"


class PendingSentence(Struct, frozen=True, kw_only=True):
    """A sentence that is being judged."""

    choice: Choice
    sentence: Sentence
    slices: Sequence[TextSlice]
    frame: Frame
    verdict: "asyncio.Task[SentenceVerdict]"


class TextPause(Struct, frozen=True, kw_only=True):
    """A pause in the text of a choice. ``slices`` is the whitespace before the pause."""

    choice: Choice
    slices: Sequence[TextSlice]


class ReasoningText(Struct, frozen=True, kw_only=True):
    """Reasoning in the text of a choice, or the tags around it. They are forwarded unjudged."""

    choice: Choice
    slices: Sequence[TextSlice]


class EndOfText(Struct, frozen=True, kw_only=True):
    """The text of a choice has ended."""

    choice: Choice
    frame: Frame


Item = Output | PendingSentence | TextPause | ReasoningText | EndOfText
"""A reader's output: content to forward, or a sentence to decide on."""
