"""The parts of a reply that flow through the pipeline, as input and as output, independent of any API.

A protocol adapter decodes upstream bytes into events, and encodes outputs into bytes for the client.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from judges.types import Chunk, Source


class Frame(Struct, frozen=True, kw_only=True):
    """The JSON of an upstream event with one choice. ``tokens`` contains the log-probability entries of its text, if it
    has any."""

    json: Mapping[str, Any]
    tokens: Sequence[Mapping[str, Any]] | None = None
    as_list: bool = False
    """Whether the text came as a list of typed parts instead of a string."""
    field: str | None = None
    """The name of the field, if the text is reasoning that is judged. None for the text of the reply itself."""


class TextSlice(Struct, frozen=True, kw_only=True):
    """A part of the text in a frame. The text of a released sentence consists of slices."""

    frame: Frame
    text: str
    tokens: Sequence[Mapping[str, Any]] = ()


# Input: the events that an upstream sends.


class TextDelta(Struct, frozen=True, kw_only=True):
    """Text of a choice. ``remainder`` is the rest of the frame, which the client receives immediately, even if the text
    is held."""

    choice: int
    text: str
    frame: Frame
    remainder: Mapping[str, Any] | None = None


class Passthrough(Struct, frozen=True, kw_only=True):
    """Bytes that need no decision. They are forwarded unchanged and in order. If the bytes contain content that isn't
    judged, such as a tool call or audio, ``unchecked`` names this content."""

    raw: bytes
    choice: int | None = None
    unchecked: str | None = None
    call: bool = False
    """Whether the content is part of a tool call."""
    opaque: bool = False
    """Whether the content could not be parsed. If text is held, such content is left out."""


class ReplyStart(Struct, frozen=True, kw_only=True):
    """The reply begins. ``model`` is the model that the reply names. ``prompt_tokens`` is set if the start of the reply
    reports it."""

    model: str | None = None
    prompt_tokens: int | None = None


TOO_LONG = "length"
"""The finish reason of a reply that the upstream or the gateway ended because of its length."""


class ChoiceFinish(Struct, frozen=True, kw_only=True):
    """A choice has ended. ``final`` means that no more text can follow, so the policies decide on the choice's held
    text now. Otherwise, that text waits for the end of the reply. ``cut`` means that the text stops mid-sentence."""

    choice: int
    reason: str
    frame: Frame
    final: bool = False
    cut: bool = False


class TextBreak(Struct, frozen=True, kw_only=True):
    """Other content interrupts the text of a choice. No sentence continues after this content."""

    choice: int


class UpstreamCitation(Struct, frozen=True, kw_only=True):
    """The upstream reports that its text cites a document.

    - ``place``: the position in the text of the choice, in code points, or None if unknown.
    - ``document``: the position of the document in the request, or None if the request doesn't contain it.
    - ``names``: other names for the document, the most reliable first.
    - ``unreadable``: whether the request contains the document in a form that cannot be read.
    """

    choice: int
    place: int | None
    marker: str
    document: int | None = None
    names: Sequence[str] = ()
    unreadable: bool = False


class FoundDocuments(Struct, frozen=True, kw_only=True):
    """Documents that the upstream found and included in the reply. They arrive before the text that is based on
    them."""

    documents: Sequence[Chunk]


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts. ``frame`` is the frame that reported them, if it contains nothing else."""

    prompt_tokens: int | None
    completion_tokens: int | None
    frame: Frame | None = None
    raw: bytes = b""
    before: Sequence["Usage"] = ()
    """The token counts of earlier calls for the same reply, if there were any."""


class ReplyError(Struct, frozen=True, kw_only=True):
    """The upstream reported an error during the reply, or the reply was cut off. If it was cut off, ``raw`` is empty,
    and ``code`` is the error code that the client of a unary request would get."""

    message: str
    raw: bytes = b""
    code: str | None = None
    broken: bool = False


class EndOfReply(Struct, frozen=True):
    """The reply is complete. ``trailer`` means that the upstream may still send more bytes of the reply. ``last`` means
    that all bytes of the reply have been read."""

    raw: bytes = b""
    trailer: bool = False
    last: bool = False


ReplyPart = (
    ReplyStart
    | TextDelta
    | Passthrough
    | ChoiceFinish
    | TextBreak
    | UpstreamCitation
    | FoundDocuments
    | Usage
    | ReplyError
    | EndOfReply
)


class UpstreamEvent(Struct, frozen=True, kw_only=True):
    """One upstream event, as bytes and as parts. ``others`` is the number of characters that the model generated in
    addition to the text, such as reasoning and tool calls. Characters that are left out count too."""

    raw: bytes
    parts: Sequence[ReplyPart]
    others: int = 0


# Passed from one upstream call to the next call for the same reply.


class Continuation(Struct, frozen=True, kw_only=True):
    """The information that an upstream needs to continue a reply. ``said`` is the text so far. ``withheld`` is the
    sentence that was not delivered, and ``reasons`` says why. ``frame`` is a frame of the reply. The continuation uses
    its ids."""

    said: str
    withheld: str
    reasons: Sequence[str]
    frame: Frame


# Output: the events that the client receives.


class SupportingPassage(Struct, frozen=True, kw_only=True):
    """A passage that supports a sentence, with its document. ``position`` is the document's position in the request."""

    position: int
    chunk: Chunk
    source: Source


class FrameRemainder(Struct, frozen=True, kw_only=True):
    """The rest of a frame whose text is held."""

    choice: int
    json: Mapping[str, Any]


class ReleasedText(Struct, frozen=True, kw_only=True):
    """Text that may be shown: a sentence with its claims, or text that isn't judged. ``lead`` is the number of code
    points at its beginning that do not come from the upstream.
    """

    choice: int
    text: str
    slices: Sequence[TextSlice]
    claims: Sequence[Mapping[str, Any]] = ()
    support: Sequence[SupportingPassage] = ()
    lead: int = 0


class JudgedClaims(Struct, frozen=True, kw_only=True):
    """The claims in a sentence that was shown before it was judged (``live``)."""

    choice: int
    claims: Sequence[Mapping[str, Any]]
    frame: Frame
    support: Sequence[SupportingPassage] = ()


class ReplacementText(Struct, frozen=True, kw_only=True):
    """The text that replaces a blocked reply."""

    choice: int
    text: str
    frame: Frame


class ChoiceEnd(Struct, frozen=True, kw_only=True):
    """A choice has ended for the client. If the choice was not blocked, ``reason`` is the upstream's finish reason.

    ``summary`` is the ``grounding`` object, and ``annotations`` contains the citations of the delivered text.
    ``is_short`` means that the output is short enough to be encoded on the event loop.
    """

    choice: int
    reason: str
    frame: Frame
    blocked: bool = False
    again: bool = False
    """Whether a further call replaced a part of the upstream's first reply."""
    text: str = ""
    """All delivered text of the choice, including a replacement."""
    others: Mapping[str, str] = {}
    """The delivered text of judged reasoning, by the name of its field."""
    summary: Mapping[str, Any] | None = None
    annotations: Sequence[Mapping[str, Any]] = ()
    is_short: bool = True


class EstimatedUsage(Struct, frozen=True, kw_only=True):
    """Token counts that the gateway estimated, because the reply ended before the upstream reported them."""

    prompt_tokens: int
    completion_tokens: int
    frame: Frame


class ReplyRefusal(Struct, frozen=True, kw_only=True):
    """The reply is blocked, and the policy requires an error instead of a replacement (``on_block: error``)."""

    choice: int
    reason: str
    reason_code: str | None
    decisions: Sequence[Mapping[str, Any]]


Output = (
    Passthrough
    | FrameRemainder
    | ReleasedText
    | JudgedClaims
    | ReplacementText
    | ChoiceEnd
    | ReplyRefusal
    | Usage
    | EstimatedUsage
    | ReplyError
    | EndOfReply
)
