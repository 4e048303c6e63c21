"""What flows through the pipeline: parts of a reply, in and out, in no API's own terms.

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
    """The text came as a list of typed parts rather than as a string."""


class TextSlice(Struct, frozen=True, kw_only=True):
    """Text ``[start, end)`` of a frame's text, in code points. A released sentence is made of slices."""

    frame: Frame
    text: str
    tokens: Sequence[Mapping[str, Any]] = ()


# In: what an upstream sends.


class TextDelta(Struct, frozen=True, kw_only=True):
    """Text of a choice. ``remainder`` is what else its frame carries, for the client while the text is held."""

    choice: int
    text: str
    frame: Frame
    remainder: Mapping[str, Any] | None = None


class Passthrough(Struct, frozen=True, kw_only=True):
    """Bytes that nothing is decided about: they pass in order and unchanged. ``unchecked`` names what they carry where
    that is content which no judge looks at (tool calls, reasoning, audio, a refusal)."""

    raw: bytes
    choice: int | None = None
    unchecked: str | None = None
    opaque: bool = False
    """What it holds could not be read: where text is held, it does not leave."""


class ReplyStart(Struct, frozen=True, kw_only=True):
    """The reply begins. ``model``: the name that it gives its model; ``prompt_tokens``: if it reports them already."""

    model: str | None = None
    prompt_tokens: int | None = None


class ChoiceFinish(Struct, frozen=True, kw_only=True):
    """A choice has ended. ``final``: certainly so, hence what is held of it is settled now; otherwise text may still
    follow, and it waits for the end of the reply. ``cut``: the text stops in mid-sentence."""

    choice: int
    reason: str
    frame: Frame
    final: bool = False
    cut: bool = False


class TextBreak(Struct, frozen=True, kw_only=True):
    """The text of a choice pauses for content of another kind: no sentence runs on behind it."""

    choice: int


class UpstreamCitation(Struct, frozen=True, kw_only=True):
    """The upstream says that its text cites a document.

    ``place`` is where in the text of the choice, in code points, None where that is not said. ``document`` is the
    document's position in the request, None where it is none of the request's; ``names`` are what it is called instead
    where it goes by a name, the surest first. ``unreadable``: it was given, but in a form that nobody can read.
    """

    choice: int
    place: int | None
    marker: str
    document: int | None = None
    names: Sequence[str] = ()
    unreadable: bool = False


class FoundDocuments(Struct, frozen=True, kw_only=True):
    """Documents that the reply brings along: what the upstream itself found before the text that rests on it."""

    documents: Sequence[Chunk]


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts, and the frame that carried them if they came alone."""

    prompt_tokens: int | None
    completion_tokens: int | None
    frame: Frame | None = None
    raw: bytes = b""
    before: Sequence["Usage"] = ()
    """What earlier calls for the same reply took, where there was more than one."""


class ReplyError(Struct, frozen=True, kw_only=True):
    """The upstream reports an error in mid-reply, or its reply broke off (``raw`` is empty then, and ``code`` is that
    of the error which a reply would be answered with that is read whole)."""

    message: str
    raw: bytes = b""
    code: str | None = None
    broken: bool = False


class EndOfReply(Struct, frozen=True):
    """The upstream says that the reply is complete. ``trailer``: bytes that belong to it may follow; ``last``: nothing
    does, since all of it has been read."""

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
    """One upstream event: the bytes that it came as, and what is in it."""

    raw: bytes
    parts: Sequence[ReplyPart]


# Between two calls for one reply.


class Continuation(Struct, frozen=True, kw_only=True):
    """What an upstream is told when it is asked to go on from what stands of its reply.

    ``said`` stands, ``withheld`` does not, ``reasons`` say why. ``frame`` is one of the reply's, which goes on as it
    began.
    """

    said: str
    withheld: str
    reasons: Sequence[str]
    frame: Frame


# Out: what the client gets.


class SupportingPassage(Struct, frozen=True, kw_only=True):
    """A passage that supports a sentence, and its document. ``position`` is the document's in the request."""

    position: int
    chunk: Chunk
    source: Source


class FrameRemainder(Struct, frozen=True, kw_only=True):
    """The rest of a frame whose text is held."""

    choice: int
    json: Mapping[str, Any]


class ReleasedText(Struct, frozen=True, kw_only=True):
    """Text that may be shown: a sentence with its claims, or text that nobody judges.

    ``lead``: how many code points at its beginning are not what the upstream sent there.
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
    """What the client gets in place of a blocked reply."""

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
    """All that was delivered of the choice, a replacement included."""
    summary: Mapping[str, Any] | None = None
    annotations: Sequence[Mapping[str, Any]] = ()


class EstimatedUsage(Struct, frozen=True, kw_only=True):
    """Usage that we counted, since the upstream had no time to report it."""

    prompt_tokens: int
    completion_tokens: int
    frame: Frame


class ReplyRefusal(Struct, frozen=True, kw_only=True):
    """The reply is blocked and the policy wants an error rather than a replacement (``on_block: error``)."""

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
