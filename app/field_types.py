"""Field types shared by the schemas of the configuration file, the admin API and the dashboard."""

from typing import Annotated

from pydantic import StringConstraints

_ONE_LINE = r"^[^\x00-\x1f\x7f]+$"

Line = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_ONE_LINE)]
"""A name or other short text on one line."""
Word = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=_ONE_LINE)]
"""A name or id in a path or query string."""
