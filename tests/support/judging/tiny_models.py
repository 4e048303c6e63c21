"""Two-layer models with random weights, and tokenizers of the real classes, in the folder layout of the Hub.

The models have the same architectures and heads as the presets' models, so that the loading code can be tested. Each
function writes a model to ``folder``. Needs torch and transformers.
"""

import random
import string
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

WORDS = [
    "the",
    "cat",
    "dog",
    "sleeps",
    "runs",
    "on",
    "a",
    "mat",
    "in",
    "house",
    "of",
    "grandma",
    "with",
    "red",
    "blue",
    "old",
    "new",
    "seven",
    "thirty",
    "days",
    "price",
    "costs",
    "euro",
    "refund",
    "company",
    "opened",
    "office",
    "moved",
    "to",
    "north",
    "last",
    "year",
    "never",
    "always",
]
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SPREAD = {"initializer_range": 0.3}
"""Makes the weights so large that different inputs have different outputs."""
_POSITIONS = 514
_GAIN = 4.0
"""The factor by which a head's weights are multiplied, so that different inputs have different probabilities."""
_GAIN_IN_T5 = 0.3


def pairs(count: int = 50, *, longest: int = 60, seed: int = 7) -> list[tuple[str, str]]:
    """Return (evidence, claim) pairs of random words. Most are short, and every tenth has evidence of ``longest``
    words."""
    rng = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."

    return [
        (text(longest if number % 10 == 9 else rng.randint(2, 12)), text(rng.randint(1, 8))) for number in range(count)
    ]


def roberta_classifier(folder: Path, *, labels: int = 2, **config: Any) -> None:
    """Write a RoBERTa classifier, like MiniCheck-RoBERTa."""
    import transformers

    tokenizer = _roberta_tokenizer()
    settings = transformers.RobertaConfig(**_roberta_sizes(tokenizer), num_labels=labels, **config)
    model = transformers.RobertaForSequenceClassification(_seeded(settings))
    _enlarge(model.classifier.out_proj)
    _save(folder, model, tokenizer)


def deberta_classifier(folder: Path, *, labels: int = 2, **config: Any) -> None:
    """Write a DeBERTa-v3 classifier, like MiniCheck-DeBERTa, FactCG and the NLI models."""
    import transformers

    vocabulary = [("[PAD]", 0.0), ("[UNK]", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[MASK]", 0.0), *_unigrams()]
    tokenizer = transformers.DebertaV2Tokenizer(vocab=vocabulary, model_max_length=512)
    settings = transformers.DebertaV2Config(
        **_SIZES,
        **_SPREAD,
        vocab_size=len(tokenizer),
        max_position_embeddings=512,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        pooler_hidden_size=_SIZES["hidden_size"],
        num_labels=labels,
        **config,
    )
    model = transformers.DebertaV2ForSequenceClassification(_seeded(settings))
    _enlarge(model.classifier)
    _save(folder, model, tokenizer)


def modernbert_classifier(folder: Path, *, labels: int = 3, **config: Any) -> None:
    """Write a ModernBERT classifier, like ModernBERT NLI."""
    import transformers

    tokenizer = _modernbert_tokenizer()
    model = transformers.ModernBertForSequenceClassification(_modernbert_config(tokenizer, labels, **config))
    _enlarge(model.classifier)
    _save(folder, model, tokenizer)


def modernbert_token_classifier(folder: Path, *, labels: int = 2) -> None:
    """Write a ModernBERT token classifier, like LettuceDetect."""
    import transformers

    tokenizer = _modernbert_tokenizer()
    model = transformers.ModernBertForTokenClassification(_modernbert_config(tokenizer, labels))
    _enlarge(model.classifier)
    _save(folder, model, tokenizer)


def mmbert_token_classifier(folder: Path) -> None:
    """Write a ModernBERT token classifier with Gemma's tokenizer, like LettuceDetect v2."""
    import transformers

    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    vocabulary = {token: number for number, token in enumerate([*specials, "▁", *string.printable])}
    tokenizer = transformers.GemmaTokenizer(vocab=vocabulary, merges=[], mask_token="<mask>", model_max_length=8192)
    tokenizer._tokenizer.post_processor = _pair_template(tokenizer, "<bos>", "<eos>")
    model = transformers.ModernBertForTokenClassification(_modernbert_config(tokenizer, 2))
    _enlarge(model.classifier)
    _save(folder, model, tokenizer)


def eurobert_token_classifier(folder: Path) -> None:
    """Write a EuroBERT token classifier with a byte-level tokenizer like Llama's, like multilingual LettuceDetect."""
    import transformers

    specials = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "pad_token": "<|pad|>"}
    tokenizer = _byte_level(list(specials.values()), specials, "<|begin_of_text|>", "<|end_of_text|>")
    settings = transformers.EuroBertConfig(
        **_SIZES,
        **_SPREAD,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        num_labels=2,
    )
    model = transformers.EuroBertForTokenClassification(_seeded(settings))
    _enlarge(model.classifier)
    _save(folder, model, tokenizer)


def flan_t5(folder: Path) -> None:
    """Write a T5 that generates text, like MiniCheck-Flan-T5."""
    import transformers

    tokenizer = _t5_tokenizer()
    model = transformers.T5ForConditionalGeneration(_t5_config(tokenizer))
    _enlarge(model.lm_head, _GAIN_IN_T5)
    _save(folder, model, tokenizer)


def hhem(folder: Path, base: Path) -> None:
    """Write a model like HHEM-2.1-Open: to ``folder``, a T5 token classifier whose weights have a prefix; to ``base``,
    its base model's configuration and tokenizer."""
    import transformers
    from safetensors.torch import save_file

    tokenizer = _t5_tokenizer()
    settings = _t5_config(tokenizer, num_labels=2)
    model = transformers.T5ForTokenClassification(settings)
    _enlarge(model.classifier, _GAIN_IN_T5)
    weights = {f"t5.{name}": weight.contiguous().clone() for name, weight in model.state_dict().items()}
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "HHEMv2Config", "foundation": "google/flan-t5-base"}')
    _t5_config(tokenizer).save_pretrained(base)
    tokenizer.save_pretrained(base)


def alignscore(folder: Path, base: Path, *, file: str = "AlignScore-base.ckpt") -> None:
    """Write a model like AlignScore: to ``folder``, a Lightning checkpoint with three heads; to ``base``, its encoder's
    configuration and tokenizer."""
    import torch
    import transformers

    tokenizer = _roberta_tokenizer()
    settings = transformers.RobertaConfig(**_roberta_sizes(tokenizer))
    encoder = transformers.RobertaModel(_seeded(settings))
    size = settings.hidden_size
    heads = {"bin_layer": torch.nn.Linear(size, 2), "tri_layer": torch.nn.Linear(size, 3)}
    heads["reg_layer"] = torch.nn.Linear(size, 1)
    _enlarge(heads["tri_layer"])
    state = {f"base_model.{name}": weight for name, weight in encoder.state_dict().items()}
    state |= {f"{name}.{part}": weight for name, head in heads.items() for part, weight in head.state_dict().items()}
    state["mlm_head.bias"] = torch.zeros(len(tokenizer))
    folder.mkdir(parents=True)
    with _lightning() as attribute_dict:
        settings_of_training = attribute_dict({"model": "roberta-base", "using_pretrained": True})
        torch.save({"state_dict": state, "epoch": 3, "hyper_parameters": settings_of_training}, folder / file)
    settings.save_pretrained(base)
    tokenizer.save_pretrained(base)


@contextmanager
def _lightning() -> Iterator[type[dict[str, Any]]]:
    """Provide as much of Lightning's class for hyper-parameters as a pickle needs."""
    names = ("pytorch_lightning", "pytorch_lightning.utilities", "pytorch_lightning.utilities.parsing")
    modules = {name: ModuleType(name) for name in names}
    made: type[dict[str, Any]] = type("AttributeDict", (dict,), {"__module__": names[-1]})
    modules[names[-1]].__dict__["AttributeDict"] = made
    sys.modules.update(modules)
    try:
        yield made
    finally:
        for name in names:
            del sys.modules[name]


def _roberta_sizes(tokenizer: Any) -> dict[str, Any]:
    return (
        _SIZES
        | _SPREAD
        | {
            "vocab_size": len(tokenizer),
            "max_position_embeddings": _POSITIONS,
            "type_vocab_size": 1,
            "pad_token_id": tokenizer.pad_token_id,
        }
    )


def _modernbert_config(tokenizer: Any, labels: int, **config: Any) -> Any:
    import transformers

    return _seeded(
        transformers.ModernBertConfig(
            **_SIZES,
            **_SPREAD,
            vocab_size=len(tokenizer),
            max_position_embeddings=8192,
            num_labels=labels,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.pad_token_id,
            cls_token_id=tokenizer.pad_token_id,
            sep_token_id=tokenizer.pad_token_id,
            **config,
        )
    )


def _t5_config(tokenizer: Any, **config: Any) -> Any:
    import transformers

    return _seeded(
        transformers.T5Config(
            vocab_size=len(tokenizer),
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            decoder_start_token_id=0,
            **config,
        )
    )


def _seeded(config: Any) -> Any:
    import torch

    torch.manual_seed(11)
    return config


def _enlarge(head: Any, gain: float = _GAIN) -> None:
    import torch

    with torch.no_grad():
        head.weight.mul_(gain)


def _save(folder: Path, model: Any, tokenizer: Any) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _unigrams() -> list[tuple[str, float]]:
    """Return the pieces of a SentencePiece vocabulary: whole words, and all printable characters."""
    words = [(f"▁{word}", -4.0) for word in WORDS]
    return [*words, ("▁", -6.0), *((character, -8.0) for character in string.printable if not character.isspace())]


def _t5_tokenizer() -> Any:
    import transformers

    filler = [(f"filler{number}", -20.0) for number in range(60)]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *_unigrams(), *filler]
    return transformers.T5Tokenizer(vocab=vocabulary, model_max_length=512)


def _roberta_tokenizer() -> Any:
    import transformers

    tokens = ["<s>", "<pad>", "</s>", "<unk>", *_byte_alphabet(), "<mask>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=[], model_max_length=512)


def _modernbert_tokenizer() -> Any:
    specials = {
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
    }
    return _byte_level(list(specials.values()), specials, "[CLS]", "[SEP]")


def _byte_level(added: list[str], roles: dict[str, str], first: str, separator: str) -> Any:
    import tokenizers
    import transformers

    vocabulary = {token: number for number, token in enumerate([*added, *_byte_alphabet()])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=8192, **roles)
    tokenizer._tokenizer.post_processor = _pair_template(tokenizer, first, separator)
    return tokenizer


def _pair_template(tokenizer: Any, first: str, separator: str) -> Any:
    from tokenizers.processors import TemplateProcessing

    ids: Callable[[str], int] = tokenizer.convert_tokens_to_ids
    return TemplateProcessing(
        single=f"{first} $A {separator}",
        pair=f"{first} $A {separator} $B:1 {separator}:1",
        special_tokens=[(first, ids(first)), (separator, ids(separator))],
    )


def _byte_alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())
