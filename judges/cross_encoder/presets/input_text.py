"""Builds a model's inputs from evidence and claims."""

import re
from collections.abc import Sequence
from typing import Any, Final

_SLOTS: Final = re.compile(r"\{(evidence|claim|eos)\}")
_HARMLESS: Final = "("

Pair = tuple[str, str]


class TextSafety:
    """Removes the tokenizer's special tokens from texts. Otherwise, a document with ``</s>`` or ``[SEP]`` could end the
    evidence and add a claim."""

    def __init__(self, tokenizer: Any) -> None:
        tokens = sorted((token for token in tokenizer.all_special_tokens if len(token) > 1), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, tokens))) if tokens else None

    def __call__(self, text: str) -> str:
        """Return ``text`` without special tokens. Its length doesn't change."""
        if self._special is None:
            return text
        return self._special.sub(lambda found: _HARMLESS + found[0][1:], text)


class TextTemplate:
    """A template with slots for the evidence, the claim and the end-of-sequence token."""

    def __init__(self, template: str, tokenizer: Any) -> None:
        self._parts = _SLOTS.split(template)
        self._eos = tokenizer.eos_token or tokenizer.sep_token or ""

    def render(self, evidence: str = "", claim: str = "") -> str:
        """Fill the slots. Text in a slot is never read as another slot."""
        values = {"evidence": evidence, "claim": claim, "eos": self._eos}
        return "".join(values[part] if place % 2 else part for place, part in enumerate(self._parts))


class TextInputs:
    """Encodes each pair as one text.

    Args:
        tokenizer: the model's tokenizer.
        template: the text, with the slots of ``TextTemplate``.
        limit: maximum input length in tokens. If a pair exceeds it, only the evidence is shortened.
    """

    def __init__(self, tokenizer: Any, template: str, limit: int) -> None:
        self._tokenizer = tokenizer
        self._template = TextTemplate(template, tokenizer)
        self._safe = TextSafety(tokenizer)
        self._limit = limit
        self.max_tokens = limit - self._length("", "")
        """The maximum number of tokens for evidence and claim together."""
        self.pairs_cut = 0

    def encode(self, pairs: Sequence[Pair]) -> Any:
        """Encode ``pairs`` as one padded batch of tensors."""
        texts = [self._fit(self._safe(evidence), self._safe(claim)) for evidence, claim in pairs]
        return self._tokenizer(
            texts, truncation=True, max_length=self._limit, padding=True, return_tensors="pt", verbose=False
        )

    def _fit(self, evidence: str, claim: str) -> str:
        over = self._length(evidence, claim) - self._limit
        if over > 0:
            self.pairs_cut += 1
        while over > 0 and evidence:
            evidence = self._without_last(evidence, over)
            over = self._length(evidence, claim) - self._limit
        return self._template.render(evidence, claim)

    def _without_last(self, text: str, count: int) -> str:
        """Return ``text`` without its last ``count`` tokens, or at least without its last character."""
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = encoded["offset_mapping"]
        # A white-space token may be reported as starting at the end of the text.
        return text[: min(offsets[-count][0], len(text) - 1)] if count < len(offsets) else ""

    def _length(self, evidence: str, claim: str) -> int:
        return len(self._tokenizer(self._template.render(evidence, claim), verbose=False)["input_ids"])


class PairInputs:
    """Encodes each pair as two texts, which the tokenizer joins.

    Args:
        tokenizer: the model's tokenizer.
        limit: maximum input length in tokens. If a pair exceeds it, the first text is shortened.
        prompt: the first text of each pair, with the slot ``{evidence}``.
    """

    def __init__(self, tokenizer: Any, limit: int, prompt: str = "{evidence}") -> None:
        self._tokenizer = tokenizer
        self._template = TextTemplate(prompt, tokenizer)
        self._safe = TextSafety(tokenizer)
        self._limit = limit
        self._added = tokenizer.num_special_tokens_to_add(pair=True)
        self.max_tokens = limit - self._length(self._template.render(), "")
        """The maximum number of tokens for evidence and claim together."""
        self.pairs_cut = 0

    def encode(self, pairs: Sequence[Pair], **options: Any) -> Any:
        """Encode ``pairs`` as one padded batch of tensors."""
        firsts = [self._template.render(self._safe(evidence)) for evidence, _ in pairs]
        seconds = [self._safe(claim) for _, claim in pairs]
        lengths = [self._length(first, second) for first, second in zip(firsts, seconds, strict=True)]
        self.pairs_cut += sum(length > self._limit for length in lengths)
        longest = max((self._length("", claim) for claim in seconds), default=0)
        return self._tokenizer(
            firsts,
            seconds,
            truncation="only_first" if longest <= self._limit else "longest_first",
            max_length=self._limit,
            padding=True,
            return_tensors="pt",
            verbose=False,
            **options,
        )

    def _length(self, first: str, second: str) -> int:
        encoded = (self._tokenizer(text, add_special_tokens=False, verbose=False) for text in (first, second))
        return int(self._added) + sum(len(each["input_ids"]) for each in encoded)
