"""T5 models: MiniCheck-Flan-T5, which chooses between two tokens, and HHEM, which classifies the first token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from judges.cross_encoder.label_mapping import LabelMapping
from judges.cross_encoder.presets.input_text import TextInputs
from judges.cross_encoder.presets.local_model import TokenizedModel
from judges.cross_encoder.presets.model_source import ModelSource
from judges.types import Probabilities


class TokenChoiceForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The field ``form`` of presets of the kind "t5-token". ``tables/t5.toml`` describes its keys."""

    text: str
    unsupported: int
    supported: int


class FirstTokenForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The field ``form`` of presets of the kind "t5-first". ``tables/t5.toml`` describes its keys."""

    text: str
    prefix: str
    supported: int
    labels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _T5Model(TokenizedModel):
    model: Any
    inputs: TextInputs
    labels: LabelMapping

    def _encode(self, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        encoded = self.inputs.encode(pairs).to(self.model.device)
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChooser(_T5Model):
    """Compares the logits of two possible first tokens of the decoder."""

    tokens: tuple[int, int]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        import torch

        with torch.inference_mode():
            encoded = self._encode(pairs)
            start = torch.zeros((len(pairs), 1), dtype=torch.long, device=self.model.device)
            logits = self.model(**encoded, decoder_input_ids=start).logits[:, 0, list(self.tokens)]
        return self.labels.probabilities(logits.float().cpu().numpy())


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenClassifier(_T5Model):
    """Classifies the first token of the input."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        import torch

        with torch.inference_mode():
            logits = self.model(**self._encode(pairs)).logits[:, 0, :]
        return self.labels.probabilities(logits.float().cpu().numpy())


def load_token_chooser(source: ModelSource) -> TokenChooser:
    """Load a preset of the kind "t5-token". Raises JudgeUnavailableError or any error from the libraries."""
    from transformers import AutoModelForSeq2SeqLM

    form = msgspec.convert(source.preset.form, TokenChoiceForm)
    tokenizer = source.tokenizer()
    model = source.load(AutoModelForSeq2SeqLM)
    return TokenChooser(
        model=model,
        tokenizer=tokenizer,
        inputs=TextInputs(tokenizer, form.text, source.preset.max_tokens),
        labels=LabelMapping(size=2, entailed=1),
        revision=getattr(model.config, "_commit_hash", None),
        tokens=(form.unsupported, form.supported),
    )


def load_first_token_classifier(source: ModelSource) -> FirstTokenClassifier:
    """Load a preset of the kind "t5-first". The model's repository wraps transformers' T5ForTokenClassification in
    another class. That class isn't needed: it only adds a prefix to the names of the weights, which is removed here.

    Raises JudgeUnavailableError or any error from the libraries.
    """
    from safetensors.torch import load_file
    from transformers import T5ForTokenClassification

    form = msgspec.convert(source.preset.form, FirstTokenForm)
    tokenizer = source.tokenizer()
    config = source.base_config()
    config.num_labels = form.labels
    model = T5ForTokenClassification(config)
    weights = load_file(source.file("model.safetensors"))
    state = {name.removeprefix(form.prefix): weight for name, weight in weights.items()}
    found = model.load_state_dict(state, strict=False)
    # The encoder shares the embeddings of the whole model, so they may be missing.
    source.check_complete([name for name in found.missing_keys if not name.endswith("embed_tokens.weight")])
    return FirstTokenClassifier(
        model=source.prepare(model),
        tokenizer=tokenizer,
        inputs=TextInputs(tokenizer, form.text, source.preset.max_tokens),
        labels=LabelMapping(size=form.labels, entailed=form.supported),
        revision=None,
    )
