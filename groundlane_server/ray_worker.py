"""The judge of an evaluation on a Ray cluster, as an actor of Ray Data.

Ray sends the class to its workers by name and unpickles the arguments before the actor exists, so the class is defined
here and takes the arguments as bytes: a worker finds ``app`` only once ``activate()`` has run there.
"""

import pickle
from collections.abc import Mapping
from typing import Any

from groundlane_server import activate


class RayJudge:
    """Takes the pickled arguments of ``app.evaluation.runs.ray_engine.BatchJudge``, and raises what that raises."""

    def __init__(self, arguments: bytes) -> None:
        activate()
        from app.evaluation.runs.ray_engine import BatchJudge

        self._judge = BatchJudge(*pickle.loads(arguments))  # noqa: S301 - written by the process that starts the run

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._judge(batch)
