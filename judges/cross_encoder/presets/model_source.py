"""Locates a preset's model and loads its parts. Needs torch and transformers, which are imported only when they are
used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judges.cross_encoder.model_files import CONFIG, check_folder, is_folder
from judges.cross_encoder.presets.preset_table import Preset
from judges.protocols import JudgeUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A preset with the user's choices. ``model`` and ``base`` are Hub ids or folders, ``device`` is a torch device,
    and ``dtype`` is the name of a torch type."""

    preset: Preset
    model: str
    base: str
    device: str
    dtype: str = "float32"
    revision: str | None = None
    trust_remote_code: bool = False

    @property
    def hint(self) -> str:
        """A hint to append to an error from the libraries. It says which files the folder must contain, or that the
        model is looked up on the Hub."""
        if is_folder(self.model):
            return f"; {self.model} must contain {self.preset.model}, or a model made from it"
        return f"; {self.model!r} is looked up on the Hugging Face Hub: for a copy on disk, set model=/path/to/folder"

    def check_folders(self) -> None:
        """Raise JudgeUnavailableError if the path of the model or of its base doesn't exist or doesn't contain a
        model."""
        check_folder(self.model, needed="" if self.preset.base else CONFIG)
        if self.preset.base:
            check_folder(self.base, needed=CONFIG)

    def load(self, auto_class: Any, **options: Any) -> Any:
        """Load the model with an ``AutoModel`` class, ready for inference.

        Raises JudgeUnavailableError if the weights lack a part of the model, such as its head.
        """
        model, found = auto_class.from_pretrained(
            self.model,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            dtype=self.dtype,
            # Some of these models have pickled weights, which are read without running any code in them.
            weights_only=True,
            output_loading_info=True,
            **options,
        )
        self.check_complete(found["missing_keys"])
        return self.prepare(model)

    def prepare(self, model: Any) -> Any:
        """Move ``model`` to the device, convert it to ``dtype`` and disable dropout."""
        import torch

        return model.to(device=self.device, dtype=getattr(torch, self.dtype)).eval()

    def check_complete(self, missing: Any) -> None:
        """Raise JudgeUnavailableError if any weights are missing, because they would be initialised at random."""
        if missing:
            names = sorted(missing)
            raise JudgeUnavailableError(
                f"{self.model} is not a model of this kind: it has no weights for {names[0]}"
                + (f" and {len(names) - 1} others" if len(names) > 1 else "")
            )

    def check_labels(self, found: int, expected: int) -> None:
        """Raise JudgeUnavailableError unless the model has as many classes as the preset expects."""
        if found != expected:
            raise JudgeUnavailableError(
                f"{self.model} has {found} classes, but this preset's model has {expected}; "
                f"for other models, use GROUNDLANE_JUDGE=st:{self.model}"
            )

    def tokenizer(self) -> Any:
        """Load the model's tokenizer, or its base's if the model has none."""
        from transformers import AutoTokenizer

        folder = Path(self.model)
        local = folder.is_dir() and (folder / "tokenizer_config.json").is_file()
        if self.base and not local:
            tokenizer = AutoTokenizer.from_pretrained(self.base)
        else:
            tokenizer = AutoTokenizer.from_pretrained(
                self.model, revision=self.revision, trust_remote_code=self.trust_remote_code
            )
        tokenizer.padding_side = "right"  # Some models read their result from the first token.
        return tokenizer

    def base_config(self) -> Any:
        """Load the configuration of the base model."""
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(self.base)

    def file(self, name: str) -> Path:
        """Return the path of a file of the model, downloaded if necessary."""
        folder = Path(self.model)
        if folder.is_dir():
            check_folder(self.model, needed=name)
            return folder / name
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(self.model, name, revision=self.revision))
