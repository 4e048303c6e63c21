"""Runs an example from the page."""

import contextlib
import io
import os


def run(code: str, environment: dict[str, str]) -> str:
    """What ``code`` prints."""
    os.environ.update(environment)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    return printed.getvalue()
