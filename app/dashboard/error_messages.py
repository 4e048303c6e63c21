"""Rewords Pydantic's validation messages for people who fill in forms."""

import re

_REWRITES = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r", unable to (?:parse|interpret) .*", re.DOTALL), ""),
    (re.compile(r"^(?:Input|String|List|Tuple|Set|Value|Data) should "), "Must "),
    (re.compile(r"^Field required$"), "Required"),
    (re.compile(r"^Extra inputs are not permitted$"), "Unknown field"),
)


def readable(message: str, prefix: str = "") -> str:
    """``Input should be less than or equal to 1`` as ``Must be less than or equal to 1``. ``prefix`` says what the
    message is about: ``item 2: must be …``."""
    for pattern, replacement in _REWRITES:
        message = pattern.sub(replacement, message)
    start = message[:1]
    return f"{prefix}: {start.lower()}{message[1:]}" if prefix else f"{start.upper()}{message[1:]}"
