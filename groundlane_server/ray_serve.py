"""The judge on Ray Serve: ``deploy/ray/serve.yaml`` names ``judge`` of this module and sets how it scales.

Ray sends these objects to its workers by name, so they are defined here and not in ``app``, which a worker finds only
once ``build_app`` has run there.
"""

from typing import Any

from ray import serve

from groundlane_server.judge_server import build_app


class Judge:
    """A replica. It loads its judge once and batches the requests that arrive while it is judging."""


_serve: Any = serve  # Ray is only partly typed
judge = _serve.deployment(_serve.ingress(build_app)(Judge), name="Judge").bind()
"""The application. Its settings are those of the replica's environment."""
