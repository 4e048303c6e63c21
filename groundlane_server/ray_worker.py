"""The judge for evaluations on a Ray cluster, as a Ray Data actor.

Ray sends the class to its workers by name, and a worker can import ``app`` only after ``activate()`` has run there. So
the class is defined here, and its argument is plain bytes.
"""

from collections.abc import Mapping
from typing import Any

from groundlane_server import activate


class RayJudge:
    """Runs ``app.evaluation.runs.ray_engine.BatchJudge`` in a process of the cluster."""

    def __init__(self, arguments: bytes) -> None:
        activate()
        from app.evaluation.runs.ray_engine import BatchJudge

        self._judge = BatchJudge(arguments)

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._judge(batch)
