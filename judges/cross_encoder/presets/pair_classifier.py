"""Classifiers of (evidence, claim) pairs: MiniCheck's encoders, FactCG, AlignScore, and natural language inference
models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any

import msgspec

from judges.cross_encoder.label_mapping import LabelMapping, read_label_mapping
from judges.cross_encoder.presets.input_text import PairInputs, TextInputs
from judges.cross_encoder.presets.local_model import TokenizedModel
from judges.cross_encoder.presets.model_source import ModelSource
from judges.protocols import JudgeUnavailableError
from judges.types import Probabilities


class PairForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The field ``form`` of presets of the kind "pairs". ``tables/pairs.toml`` describes its keys."""

    labels: int
    supported: int | None = None
    contradicted: int | None = None
    text: str | None = None
    head: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairClassifier(TokenizedModel):
    """A model that returns one row of logits per pair."""

    logits: Callable[[Mapping[str, Any]], Any]
    """Computes the logits for a batch of inputs."""
    device: str
    labels: LabelMapping

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        import torch

        with torch.inference_mode():
            logits = self.logits(self.inputs.encode(pairs).to(self.device))
        return self.labels.probabilities(logits.float().cpu().numpy())


def load_pair_classifier(source: ModelSource) -> PairClassifier:
    """Load a preset of the kind "pairs". Raises JudgeUnavailableError or any error from the libraries."""
    form = msgspec.convert(source.preset.form, PairForm)
    tokenizer = source.tokenizer()
    limit = source.preset.max_tokens
    inputs = TextInputs(tokenizer, form.text, limit) if form.text else PairInputs(tokenizer, limit)
    if form.head == "alignscore":
        logits, labels, revision = _alignscore(source, form), _labels(form, {}), None
    else:
        logits, labels, revision = _classifier(source, form)
    return PairClassifier(
        logits=logits, device=source.device, tokenizer=tokenizer, inputs=inputs, labels=labels, revision=revision
    )


def _classifier(source: ModelSource, form: PairForm) -> tuple[Callable[[Mapping[str, Any]], Any], LabelMapping, Any]:
    from transformers import AutoModelForSequenceClassification

    model = source.load(AutoModelForSequenceClassification)
    source.check_labels(model.config.num_labels, form.labels)
    labels = _labels(form, model.config.id2label)
    return lambda inputs: model(**inputs).logits, labels, getattr(model.config, "_commit_hash", None)


def _labels(form: PairForm, names: Mapping[int, str]) -> LabelMapping:
    if form.supported is None:
        return read_label_mapping(names, size=form.labels)
    return LabelMapping(size=form.labels, entailed=form.supported, contradicted=form.contradicted)


def _alignscore(source: ModelSource, form: PairForm) -> Callable[[Mapping[str, Any]], Any]:
    """Load an AlignScore checkpoint in Lightning's format: an encoder with a pooler, and a three-way head. Its other
    heads are not used. The checkpoint is a pickle; only tensors and plain containers are read from it.
    """
    import torch
    from transformers import RobertaModel

    config = source.base_config()
    head = torch.nn.Linear(config.hidden_size, form.labels)
    modules = torch.nn.ModuleDict({"base_model": RobertaModel(config), "tri_layer": head})
    # Lightning stores hyper-parameters in its own dictionary class.
    plain: list[Any] = [
        (dict, f"{package}.utilities.parsing.AttributeDict") for package in ("pytorch_lightning", "lightning.pytorch")
    ]
    try:
        with torch.serialization.safe_globals(plain):
            checkpoint = torch.load(source.file(form.file), map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise JudgeUnavailableError(
            f"{form.file} contains objects besides weights, and reading them could run code; "
            "save it again with only its 'state_dict'"
        ) from error
    source.check_complete(modules.load_state_dict(checkpoint["state_dict"], strict=False).missing_keys)
    modules = source.prepare(modules)
    return lambda inputs: modules["tri_layer"](modules["base_model"](**inputs).pooler_output)
