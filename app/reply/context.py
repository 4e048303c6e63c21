"""What holds for every choice of a reply."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.protocols.documents import Options
from app.reply.checks.final_checks import FinalCheck
from judges.types import Chunk, Claim, ReplyVerdict
from judges.verdicts.citation_support import CitationChecker
from policies.citations.document_names import DocumentNames
from policies.types import Decision, PolicyInputs


class ReplyContext(Struct, frozen=True, kw_only=True):
    """What holds for every choice of a reply.

    ``chunks`` are the documents that the retrieval policies kept; ``positions`` says where in the request each stands.
    ``unjudged`` is the verdict if no judge looks at the reply, else None. ``expected``: how many choices there will be.
    ``final_checks`` run at the end; ``earlier`` claims of its run and ``citation_checker`` are for them.
    ``strippable``: a sentence can be left out or replaced. ``is_json``: the reply is to be JSON. ``asked``: the
    question that it answers; ``conversation``: all that the user wrote.
    """

    request_id: str
    options: Options
    chunks: Sequence[Chunk]
    names: DocumentNames
    positions: Sequence[int]
    injectable: bool
    strippable: bool
    retrieval: Mapping[str, Any]
    retrieval_decisions: Sequence[Decision]
    unjudged: ReplyVerdict | None
    judge_unavailable: bool
    judge_name: str | None
    expected: int
    final_checks: Sequence[FinalCheck] = ()
    earlier: Sequence[Claim] = ()
    citation_checker: CitationChecker | None = None
    is_json: bool = False
    asked: str = ""
    conversation: str = ""

    def policy_inputs(self, **found: Any) -> PolicyInputs:
        """What policies look at, with what was ``found`` about the reply."""
        reported = self.options.reported
        return PolicyInputs(
            chunks=self.chunks,
            injectable=self.injectable,
            strippable=self.strippable,
            judge_unavailable=self.judge_unavailable,
            reported_scores=reported.grounding_scores,
            reported_unsupported=reported.unsupported_claims,
            output_confidence=reported.output_confidence,
            **found,
        )
