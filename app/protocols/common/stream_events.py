"""What flows through the pipeline: the parts of a reply, in and out, independent of any API.

A protocol adapter decodes upstream bytes into events, and encodes outputs into bytes for the client.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from judges.types import Chunk, Source


class Frame(Struct, frozen=True, kw_only=True):
    """The JSON of an upstream event, of one choice. ``tokens`` are the log-probability entries of its text, if any."""

    json: Mapping[str, Any]
    tokens: Sequence[Mapping[str, Any]] | None = None
    as_list: bool = False
    """The text came as a list of typed parts instead of a string."""


class TextSlice(Struct, frozen=True, kw_only=True):
    """A piece of a frame's text. A released sentence consists of slices."""

    frame: Frame
    text: str
    tokens: Sequence[Mapping[str, Any]] = ()


# In: what an upstream sends.


class TextDelta(Struct, frozen=True, kw_only=True):
    """Text of a choice. ``remainder`` is the rest of its frame, for the client while the text is held."""

    choice: int
    text: str
    frame: Frame
    remainder: Mapping[str, Any] | None = None


class Passthrough(Struct, frozen=True, kw_only=True):
    """Bytes that nothing is decided about: they pass in order and unchanged. ``unchecked`` names their content if no
    judge looks at it (tool calls, reasoning, audio, a refusal)."""

    raw: bytes
    choice: int | None = None
    unchecked: str | None = None
    call: bool = False
    """It is part of a tool call."""
    opaque: bool = False
    """It could not be read: where text is held, it is left out."""


class ReplyStart(Struct, frozen=True, kw_only=True):
    """The reply begins. ``model``: the name it gives its model; ``prompt_tokens``: if it reports them already."""

    model: str | None = None
    prompt_tokens: int | None = None


TOO_LONG = "length"
"""The reason of a reply that ended because of its length, whether the upstream or the gateway ended it."""


class ChoiceFinish(Struct, frozen=True, kw_only=True):
    """A choice has ended. ``final``: certainly, so its held text is settled now; otherwise text may still follow, and
    it waits for the end of the reply. ``cut``: the text stops in mid-sentence."""

    choice: int
    reason: str
    frame: Frame
    final: bool = False
    cut: bool = False


class TextBreak(Struct, frozen=True, kw_only=True):
    """The text of a choice pauses for content of another kind: no sentence continues after it."""

    choice: int


class UpstreamCitation(Struct, frozen=True, kw_only=True):
    """The upstream reports that its text cites a document.

    ``place`` is the position in the text of the choice, in code points; None if unknown. ``document`` is the document's
    position in the request; None if it is not one of the request's; ``names`` are other names for it, the most reliable
    first. ``unreadable``: it was given, but in a form that cannot be read.
    """

    choice: int
    place: int | None
    marker: str
    document: int | None = None
    names: Sequence[str] = ()
    unreadable: bool = False


class FoundDocuments(Struct, frozen=True, kw_only=True):
    """Documents in the reply: found by the upstream itself, before the text that is based on them."""

    documents: Sequence[Chunk]


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts, and their frame if they came alone."""

    prompt_tokens: int | None
    completion_tokens: int | None
    frame: Frame | None = None
    raw: bytes = b""
    before: Sequence["Usage"] = ()
    """The token counts of earlier calls for the same reply, if there were any."""


class ReplyError(Struct, frozen=True, kw_only=True):
    """The upstream reports an error in mid-reply, or its reply broke off. In the latter case ``raw`` is empty, and
    ``code`` is that of the error which would answer a unary request."""

    message: str
    raw: bytes = b""
    code: str | None = None
    broken: bool = False


class EndOfReply(Struct, frozen=True):
    """The upstream says that the reply is complete. ``trailer``: bytes that belong to it may follow; ``last``: nothing
    follows, since all of it has been read."""

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
    """One upstream event: its bytes, and what it says."""

    raw: bytes
    parts: Sequence[ReplyPart]


# Between two calls for one reply.


class Continuation(Struct, frozen=True, kw_only=True):
    """What an upstream is told when it is asked to continue a reply.

    ``said`` is the text so far, ``withheld`` the sentence that was not delivered, ``reasons`` say why. ``frame`` is one
    of the reply's; the continuation uses its ids.
    """

    said: str
    withheld: str
    reasons: Sequence[str]
    frame: Frame


# Out: what the client gets.


class SupportingPassage(Struct, frozen=True, kw_only=True):
    """A passage that supports a sentence, and its document. ``position`` is the document's position in the request."""

    position: int
    chunk: Chunk
    source: Source


class FrameRemainder(Struct, frozen=True, kw_only=True):
    """The rest of a frame whose text is held."""

    choice: int
    json: Mapping[str, Any]


class ReleasedText(Struct, frozen=True, kw_only=True):
    """Text that may be shown: a sentence with its claims, or text that nobody judges.

    ``lead``: how many code points at its beginning do not come from the upstream.
    """

    choice: int
    text: str
    slices: Sequence[TextSlice]
    claims: Sequence[Mapping[str, Any]] = ()
    support: Sequence[SupportingPassage] = ()
    lead: int = 0


class JudgedClaims(Struct, frozen=True, kw_only=True):
    """The claims of a sentence that was shown before it was judged (``live``)."""

    choice: int
    claims: Sequence[Mapping[str, Any]]
    frame: Frame
    support: Sequence[SupportingPassage] = ()


class ReplacementText(Struct, frozen=True, kw_only=True):
    """The text that the client gets instead of a blocked reply."""

    choice: int
    text: str
    frame: Frame


class ChoiceEnd(Struct, frozen=True, kw_only=True):
    """A choice has ended, for the client. ``reason`` is the upstream's unless it was blocked.

    ``summary`` is the ``grounding`` object, ``annotations`` are the citations of the delivered text.
    """

    choice: int
    reason: str
    frame: Frame
    blocked: bool = False
    text: str = ""
    """All delivered text of the choice, including a replacement."""
    summary: Mapping[str, Any] | None = None
    annotations: Sequence[Mapping[str, Any]] = ()


class EstimatedUsage(Struct, frozen=True, kw_only=True):
    """Usage that the gateway estimated, since the upstream had no time to report it."""

    prompt_tokens: int
    completion_tokens: int
    frame: Frame


class ReplyRefusal(Struct, frozen=True, kw_only=True):
    """The reply is blocked, and the policy wants an error instead of a replacement (``on_block: error``)."""

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
