"""The guardrail alone."""

from typing import Any

from groundlane.integrations.litellm import GroundlaneGuardrail


def refused(**options: Any) -> str:
    """The error for an invalid argument."""
    try:
        GroundlaneGuardrail(guardrail_name="grounded", **options)
    except ValueError as error:
        return str(error)
    return ""
