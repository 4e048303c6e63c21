"""The judge on Ray Serve: ``deploy/ray/serve.yaml`` names ``judge`` of this module, and sets how it scales."""

from typing import Any

from ray import serve

from app.judge_runtime.server import build_app


class Judge:
    """A replica: loads its judge once, then answers. It batches what comes while it judges, with no wait of its own."""


_library: Any = serve  # half of what it has is without types
judge = _library.deployment(_library.ingress(build_app)(Judge), name="Judge").bind()
"""The application; its settings are those of the environment of the replica."""
