"""How many tokens a text has, where the model's tokenizer is out of reach."""

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from judges.protocols import JudgeUnavailableError

_PIECE = re.compile(
    r"(?P<word>[A-Za-z]+)|(?P<number>\d+)"
    r"|(?P<unspaced>[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af])"
    r"|(?P<letters>[^\W\d_A-Za-z]+)|(?P<mark>\S)"
)
_CHARACTERS_A_TOKEN = {"word": 4, "number": 2, "unspaced": 1, "letters": 2, "mark": 1}
"""Fewer than tokenizers in use have on average, so that a text estimated to fit does fit."""


def estimate_tokens(text: str) -> int:
    """More tokens, rather than fewer, than ``text`` has for the tokenizers of common cross-encoders."""
    return sum(
        -(-len(piece.group()) // _CHARACTERS_A_TOKEN[piece.lastgroup or "mark"]) for piece in _PIECE.finditer(text)
    )


def open_counter(path: str | None) -> Callable[[str], int]:
    """Count by the ``tokenizer.json`` at ``path`` (the file or its folder), or estimate where there is none.

    Raises JudgeUnavailableError for a file that cannot be read.
    """
    if path is None:
        return estimate_tokens
    file = Path(path).expanduser()
    try:
        return _counter(Tokenizer.from_file(str(file / "tokenizer.json" if file.is_dir() else file)))
    except Exception as error:  # the library raises nothing more special
        raise JudgeUnavailableError(f"cannot read the tokenizer {path}: {error}") from error


def read_counter(content: bytes, digest: str | None) -> Callable[[str], int]:
    """Count by the ``tokenizer.json`` with this content, whose SHA-256 is ``digest``.

    Raises JudgeUnavailableError for any other, and for one that cannot be read.
    """
    if hashlib.sha256(content).hexdigest() != digest:
        raise JudgeUnavailableError("the tokenizer that the server hands out is not the one that it tells of")
    try:
        return _counter(Tokenizer.from_buffer(content))
    except Exception as error:
        raise JudgeUnavailableError(f"cannot read the tokenizer that the server hands out: {error}") from error


def _counter(tokenizer: Tokenizer) -> Callable[[str], int]:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # Windows and claims are counted several times over.
    return lru_cache(maxsize=4096)(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))
