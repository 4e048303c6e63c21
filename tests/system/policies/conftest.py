from tests.system.e2e.conftest import gateway, log, shared_gateway, start_gateway

__all__ = ["gateway", "log", "shared_gateway", "start_gateway"]
