"""What holds for every choice of a reply."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.protocols.documents import Options
from app.reply.final_checks import FinalCheck
from app.settings import StoreText
from judges.types import Chunk, Claim, ReplyVerdict
from judges.verdicts.citation_support import CitationChecker
from policies.citations.document_names import DocumentNames
from policies.types import Decision, PolicyInputs


class ReplyContext(Struct, frozen=True, kw_only=True):
    """What holds for every choice of a reply.

    ``chunks`` are the documents that the retrieval policy kept; ``positions`` says where each stood in the request.
    ``unjudged`` is the verdict where no judge looks at the reply, else None. ``final_checks`` are made at its end;
    ``earlier`` claims of its run and ``citation_checker`` are for them. ``strippable``: a sentence can be left out, or
    another stand in its place. ``is_json``: the reply is to be JSON. ``asked``: the question that it answers.
    """

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
    store_text: StoreText
    final_checks: Sequence[FinalCheck] = ()
    earlier: Sequence[Claim] = ()
    citation_checker: CitationChecker | None = None
    is_json: bool = False
    asked: str = ""

    def policy_inputs(self, **found: Any) -> PolicyInputs:
        """What policies read, with what was found of the reply."""
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
