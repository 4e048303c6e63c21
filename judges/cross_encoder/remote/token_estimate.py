"""Counts tokens for a remote model: exactly if its tokenizer is available, otherwise approximately."""

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
_CHARACTERS_PER_TOKEN = {"word": 4, "number": 2, "unspaced": 1, "letters": 2, "mark": 1}
"""Assumed number of characters per token. It is lower than the average for common tokenizers, so if the estimate is
within the limit, so is the text."""


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in ``text`` for common cross-encoders, erring on the high side."""
    return sum(
        -(-len(piece.group()) // _CHARACTERS_PER_TOKEN[piece.lastgroup or "mark"]) for piece in _PIECE.finditer(text)
    )


def open_counter(path: str | None) -> Callable[[str], int]:
    """Return a function that counts tokens with the ``tokenizer.json`` at ``path`` (the file or its folder), or
    estimates them if ``path`` is None.

    Raises JudgeUnavailableError if the file cannot be read.
    """
    if path is None:
        return estimate_tokens
    file = Path(path).expanduser()
    try:
        return _counter(Tokenizer.from_file(str(file / "tokenizer.json" if file.is_dir() else file)))
    except Exception as error:  # The library has no more specific error.
        raise JudgeUnavailableError(f"cannot read the tokenizer {path}: {error}") from error


def read_counter(content: bytes, digest: str | None) -> Callable[[str], int]:
    """Return a function that counts tokens with the ``tokenizer.json`` in ``content``, whose SHA-256 must be
    ``digest``.

    Raises JudgeUnavailableError if the digest differs or the tokenizer cannot be read.
    """
    if hashlib.sha256(content).hexdigest() != digest:
        raise JudgeUnavailableError("the server's tokenizer does not match the SHA-256 in its /info")
    try:
        return _counter(Tokenizer.from_buffer(content))
    except Exception as error:
        raise JudgeUnavailableError(f"cannot read the server's tokenizer: {error}") from error


def _counter(tokenizer: Tokenizer) -> Callable[[str], int]:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # Cached, because the tokens of a window or claim are counted more than once.
    return lru_cache(maxsize=4096)(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))
