"""Rewords Pydantic's validation messages for people who fill in forms."""

import re

from pydantic import ValidationError

_REWRITES = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r", unable to (?:parse|interpret) .*", re.DOTALL), ""),
    (re.compile(r" after validation, not \d+$"), ""),
    (
        re.compile(r"^String should match pattern .*", re.DOTALL),
        "Contains invalid characters or has the wrong format",
    ),
    (re.compile(r"^(?:Input|String|List|Tuple|Set|Value|Data) should "), "Must "),
    (re.compile(r"^Field required$"), "Required"),
    (re.compile(r"^Extra inputs are not permitted$"), "Unknown field"),
)


def readable(message: str, prefix: str = "") -> str:
    """Reword a message: ``Input should be less than or equal to 1`` becomes ``Must be less than or equal to 1``.
    ``prefix`` names the subject, as in ``item 2: must be …``."""
    for pattern, replacement in _REWRITES:
        message = pattern.sub(replacement, message)
    start = message[:1]
    return f"{prefix}: {start.lower()}{message[1:]}" if prefix else f"{start.upper()}{message[1:]}"


def field_errors(error: ValidationError, whole: str = "") -> dict[str, str]:
    """Return the first error message of each field. Errors without a field are shown at the field ``whole``."""
    return {str((each["loc"] or (whole,))[0]): f"{readable(each['msg'])}." for each in reversed(error.errors())}
