"""The gateway of the end-to-end tests, and the processes in which the libraries run."""

from tests.system.clients.conftest import worker
from tests.system.e2e.conftest import gateway, log, shared_gateway, start_gateway

__all__ = ["gateway", "log", "shared_gateway", "start_gateway", "worker"]
