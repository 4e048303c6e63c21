"""The prompt formats of the generative judges: the messages for a pair, and how the answer is parsed.

If a model's chat template contains the instructions, the texts are passed in the template's fields. For other models,
the instructions are our own, in the format that the model was trained with. To use the published wording instead, put
it in a file and set the option ``prompt``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from judges.cross_encoder.services.answer_tokens import ChatAnswer, word_probability
from judges.cross_encoder.services.pair_service import UnreadableAnswerError, one_line

_SPECIAL: Final = re.compile(r"<(?=[|/]?[\w|])")
"""The beginning of a token such as <|im_end|> or a tag such as </score> that a model may interpret."""
_PLACES: Final = re.compile(r"(\{document\}|\{claim\})")


class GenerativeForm(Protocol):
    """The prompt format of one kind of model."""

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in an answer."""
        ...

    def request_fields(self, evidence: str, claim: str) -> Mapping[str, Any]:
        """Return the fields of a chat completion request that depend on the pair."""
        ...

    def entailed(self, answer: ChatAnswer) -> float:
        """Return the probability that the evidence entails the claim. Raises UnreadableAnswerError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """Instructions, and a message with the placeholders ``{document}`` and ``{claim}``."""

    system: str = ""
    user: str

    @classmethod
    def parse(cls, text: str) -> "PromptText":
        """Parse the text of a file: either the message alone, or the instructions, a line ``---`` and the message.
        Raises ValueError if a placeholder is missing.
        """
        system, line, user = text.rpartition("\n---\n")
        if sorted(place for place in _PLACES.split(user) if place in ("{document}", "{claim}")) != [
            "{claim}",
            "{document}",
        ]:
            raise ValueError("expected {document} and {claim}, once each")
        return cls(system=system.strip() if line else "", user=user.strip())

    def messages(self, evidence: str, claim: str) -> list[dict[str, str]]:
        """Return the messages for a pair. Each text is put on one line, without special tokens, so that it can't end
        its part of the prompt."""
        texts = {"{document}": plain(evidence), "{claim}": plain(claim)}
        user = "".join(texts.get(part, part) for part in _PLACES.split(self.user))
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": user}]


def plain(text: str) -> str:
    """Return ``text`` on one line, with spaces inserted into anything that a model could read as a special token or a
    tag."""
    return _SPECIAL.sub("< ", one_line(text))


MINICHECK_PROMPT: Final = PromptText(
    system=(
        "You check whether a document supports a claim. It does if everything that the claim says follows from the "
        'document; otherwise it does not. Answer with one word: "Yes" if the document supports the claim, "No" if it '
        "does not."
    ),
    user="Document: {document}\nClaim: {claim}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniCheckForm:
    """Bespoke-MiniCheck-7B: the probability of the answer "Yes".

    Sources: https://huggingface.co/bespokelabs/Bespoke-MiniCheck-7B, https://docs.bespokelabs.ai/minicheck and
    ``get_support_prob`` in https://github.com/Liyan06/MiniCheck. The message has the lines ``Document:`` and
    ``Claim:``. The score is the total probability of the tokens that read "yes", in any case, among the five most
    likely first tokens.
    """

    prompt: PromptText = MINICHECK_PROMPT
    max_tokens: int = 1

    def request_fields(self, evidence: str, claim: str) -> Mapping[str, Any]:
        return {"messages": self.prompt.messages(evidence, claim)}

    def entailed(self, answer: ChatAnswer) -> float:
        return word_probability(answer, "yes", "no", normalised=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraniteGuardianForm:
    """Granite Guardian 3.0 to 3.2 and 3.3: the probability that the model finds no *groundedness* risk.

    Source: the model cards at https://huggingface.co/ibm-granite and the cookbooks in
    https://github.com/ibm-granite/granite-guardian. The model's chat template writes the instructions. Before 3.3, it
    uses ``risk_name`` and a message with the role ``context``. Since 3.3, it uses ``criteria_id`` and ``documents``,
    and the answer is between <score> tags. "Yes" means that the risk is present, so the text is not grounded. The
    server must pass ``chat_template_kwargs`` on to the template, as vLLM does.
    """

    documents: bool
    max_tokens: int = 20

    def request_fields(self, evidence: str, claim: str) -> Mapping[str, Any]:
        answer = {"role": "assistant", "content": plain(claim)}
        if not self.documents:
            config = {"guardian_config": {"risk_name": "groundedness"}}
            context = {"role": "context", "content": plain(evidence)}
            return {"messages": [context, answer], "chat_template_kwargs": config}
        return {
            "messages": [answer],
            "documents": [{"doc_id": "0", "text": plain(evidence)}],
            "chat_template_kwargs": {"guardian_config": {"criteria_id": "groundedness"}, "think": False},
        }

    def entailed(self, answer: ChatAnswer) -> float:
        return word_probability(answer, "no", "yes", normalised=True)


LYNX_PROMPT: Final = PromptText(
    user=(
        "Below are a QUESTION, a DOCUMENT and an ANSWER. Decide whether the ANSWER is faithful to the DOCUMENT. It is "
        "not if it says anything that the DOCUMENT does not say, or contradicts it. Use no knowledge beyond the "
        "DOCUMENT.\n\n"
        'Reply with a JSON object that has two keys: "REASONING", a list of short points, and "SCORE", which is "PASS" '
        'if the ANSWER is faithful and "FAIL" if it is not.\n\n'
        "QUESTION: What does the document say about this?\n"
        "DOCUMENT: {document}\n"
        "ANSWER: {claim}"
    ),
)
_SCORE: Final = re.compile(r'"?SCORE"?\s*:\s*"?(PASS|FAIL)\b(?P<end>"?\s*\}\Z)?', re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LynxForm:
    """Lynx: reasoning and a score, PASS or FAIL, in JSON.

    Source: https://huggingface.co/PatronusAI/Llama-3-Patronus-Lynx-8B-Instruct-v1.1 and
    https://arxiv.org/abs/2407.08488. Lynx judges an answer to a question. Since each claim is judged separately here, a
    fixed question is sent. The model writes hundreds of tokens of reasoning first, which is too slow for streams.
    """

    prompt: PromptText = LYNX_PROMPT
    max_tokens: int = 600

    def request_fields(self, evidence: str, claim: str) -> Mapping[str, Any]:
        return {"messages": self.prompt.messages(evidence, claim)}

    def entailed(self, answer: ChatAnswer) -> float:
        text = answer.text.strip()
        if text.startswith("```"):
            text = text.removesuffix("```").partition("\n")[2].strip()
        scores = list(_SCORE.finditer(text)) if answer.complete and text.startswith("{") else []
        if not scores or scores[-1]["end"] is None:
            raise UnreadableAnswerError("the answer is not a JSON object that ends with a SCORE")
        words = {score[1].upper() for score in scores}
        if len(words) > 1:  # The reasoning may quote a document that contains a score.
            raise UnreadableAnswerError("the answer has two different SCOREs")
        (word,) = words
        chosen = answer.probability_of(word)
        # The model writes the likelier word, so if it has written FAIL, PASS can't be likelier.
        return chosen if word == "PASS" else min(chosen, 1.0 - chosen)
