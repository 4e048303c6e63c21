"""Token classifiers such as LettuceDetect. They classify each token of an answer, and adjacent unsupported tokens form
a span."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from judges.cross_encoder.presets.input_text import PairInputs
from judges.cross_encoder.presets.local_model import TokenizedModel
from judges.cross_encoder.presets.model_source import ModelSource
from judges.types import Probabilities, UnsupportedSpan

_CLASSES: Final = 2
_UNSUPPORTED_FROM: Final = 0.5
"""A token with a probability above this is part of a span."""

_Token = tuple[int, int, float]
"""A token's start and end in the claim, and its P(unsupported)."""


class TokenForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The field ``form`` of presets of the kind "tokens". ``tables/tokens.toml`` describes its keys."""

    prompt: str
    unsupported: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClassifier(TokenizedModel):
    """A model with two logits for each token. A claim is as well supported as its least supported token."""

    model: Any
    inputs: PairInputs
    unsupported: int

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        import torch

        encoded = self.inputs.encode(pairs, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"].tolist()
        inputs = {name: encoded[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            logits = self.model(**inputs).logits.float()
        rows = torch.softmax(logits, dim=-1)[:, :, self.unsupported].cpu().tolist()
        return [
            _read(claim, _tokens(offsets[row], rows[row], encoded.sequence_ids(row)))
            for row, (_, claim) in enumerate(pairs)
        ]


def load_token_classifier(source: ModelSource) -> TokenClassifier:
    """Load a preset of the kind "tokens". Raises JudgeUnavailableError or any error from the libraries."""
    from transformers import AutoModelForTokenClassification

    form = msgspec.convert(source.preset.form, TokenForm)
    tokenizer = source.tokenizer()
    model = source.load(AutoModelForTokenClassification)
    source.check_labels(model.config.num_labels, _CLASSES)
    return TokenClassifier(
        model=model,
        tokenizer=tokenizer,
        inputs=PairInputs(tokenizer, source.preset.max_tokens, form.prompt),
        unsupported=form.unsupported,
        revision=getattr(model.config, "_commit_hash", None),
    )


def _tokens(offsets: Sequence[Sequence[int]], scores: Sequence[float], texts: Sequence[int | None]) -> list[_Token]:
    """Return the tokens of the claim, which is the second of the two texts."""
    return [
        (start, end, score)
        for (start, end), score, text in zip(offsets, scores, texts, strict=True)
        if text == 1 and start < end
    ]


def _read(claim: str, tokens: Sequence[_Token]) -> Probabilities:
    worst = max((score for _, _, score in tokens), default=1.0)
    return Probabilities(1.0 - worst, worst, 0.0, spans=tuple(_spans(claim, tokens)))


def _spans(claim: str, tokens: Iterable[_Token]) -> Iterable[UnsupportedSpan]:
    """Join adjacent unsupported tokens into spans, without the whitespace around them."""
    run: list[_Token] = []
    for token in [*tokens, (len(claim), len(claim), 0.0)]:
        if token[2] > _UNSUPPORTED_FROM:
            run.append(token)
        elif run:
            text = claim[run[0][0] : run[-1][1]]
            start = run[0][0] + len(text) - len(text.lstrip())
            if text.strip():
                yield UnsupportedSpan(start, start + len(text.strip()), max(score for _, _, score in run))
            run = []
