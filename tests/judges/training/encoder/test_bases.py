"""How base models are found, and how their tokenizers are read."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from judges.training.encoder import bases as base


def test_model_split_into_packages_is_assembled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("all-mpnet/model.safetensors", "weights")
        archive.writestr("all-mpnet/tokenizer.json", "{}")
        archive.writestr("all-mpnet/README.md", "words")
    content = whole.read_bytes()
    for number, part in enumerate((content[:100], content[100:]), start=1):
        (tmp_path / f"model.zip.00{number}").write_bytes(part)

    def installed(package: str) -> list[SimpleNamespace]:
        file = tmp_path / f"model.zip.00{package}"
        return [SimpleNamespace(name=file.name, locate=lambda: file), SimpleNamespace(name="__init__.py")]

    monkeypatch.setattr(base, "files", installed)
    folder = base._mpnet(("1", "2"), tmp_path / "cache")
    assert {file.name for file in folder.iterdir()} == {"model.safetensors", "tokenizer.json"}
    assert (folder / "model.safetensors").read_text() == "weights"
    monkeypatch.undo()
    assert base._mpnet((), tmp_path / "cache") == folder


def test_missing_packages_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-package-of-weights is not installed"):
        base._mpnet(("no-such-package-of-weights",), tmp_path)
    with pytest.raises(FileNotFoundError, match="numpy: expected one part"):
        base._mpnet(("numpy",), tmp_path)


def test_special_tokens_in_a_text_are_text(tmp_path: Path) -> None:
    """A document may contain <s> or [SEP]; neither may end anything."""
    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[SEP]", "<s>", "<", "s", ">", "a"])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["<s>", "[SEP]"])
    made.enable_truncation(2)
    made.save(str(tmp_path / "tokenizer.json"))
    assert json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
    read = base.tokenizer(tmp_path / "tokenizer.json")
    assert read.encode("a <s> a", add_special_tokens=False).tokens == ["a", "<", "s", ">", "a"]
    assert read.token_to_id("[SEP]") == 2
