"""The guardrail by itself."""

from typing import Any

from groundlane.integrations.litellm import GroundlaneGuardrail


def refused(**options: Any) -> str:
    """What is said of a bad argument."""
    try:
        GroundlaneGuardrail(guardrail_name="grounded", **options)
    except ValueError as error:
        return str(error)
    return ""
