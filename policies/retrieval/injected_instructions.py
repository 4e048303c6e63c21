"""Checks whether a document contains instructions to the model or to the judge."""

from collections.abc import Iterator

from judges.text.injection.detector import find_instruction
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import document_violation
from policies.types import PolicyInputs, Violation


def check_injected_instructions(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    """Check that the document contains no instructions in its text, title or source. (In the prompt, a document without
    a title is named by its source.)"""
    if rules.on_injected_instructions == "ignore":
        return
    chunk = inputs.chunks[index]
    texts = filter(None, (chunk.text, chunk.title, chunk.source))
    found = next(filter(None, map(find_instruction, texts)), None)
    if found is not None:
        yield document_violation(
            rules.on_injected_instructions,
            inputs,
            index,
            reason=f"Document '{chunk.id}' carries instructions to the model or the judge ({found.kind})",
            reason_code="RETRIEVAL_INJECTED_INSTRUCTIONS",
            metadata={"kind": found.kind, "sentence": found.sentence},
        )
