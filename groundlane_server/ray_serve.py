"""The judge on Ray Serve. ``deploy/ray/serve.yaml`` refers to ``judge`` in this module and configures its scaling.

Ray sends these objects to its workers by name, so they are defined here instead of in ``app``. A worker can import
``app`` only after ``build_app`` has run there.
"""

from typing import Any

from ray import serve

from groundlane_server.judge_server import build_app


class Judge:
    """A replica. A replica loads its judge once, and batches requests that arrive while it is judging."""


_serve: Any = serve  # Ray is only partly typed
judge = _serve.deployment(_serve.ingress(build_app)(Judge), name="Judge").bind()
"""The application. The settings come from the environment of the replica."""
