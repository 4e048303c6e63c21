"""Runs one client library in a separate process: one question per line on standard input, and one result per line.

Libraries keep caches, loops and connections for the life of a process, configure logging when imported, and require
their own versions of packages that the gateway uses too. Here they may. Needs nothing but the library.
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tests.system.clients.scenario import Question, Seen


def main() -> None:
    """Answer until standard input ends. The library's output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        module, function, fields = json.loads(line)
        answers.write(json.dumps(_answer(module, function, fields)) + "\n")
        answers.flush()


def _answer(module: str, function: str, fields: dict[str, Any]) -> dict[str, Any]:
    try:
        if "." in module:  # any function that returns JSON
            return {"seen": getattr(importlib.import_module(module), function)(**fields)}
        ask: Callable[[Question], Seen] = getattr(
            importlib.import_module(f"tests.system.clients.drivers.{module}"), function
        )
        return {"seen": asdict(ask(Question(**fields)))}
    except Exception:
        return {"failure": traceback.format_exc()}


if __name__ == "__main__":
    main()
