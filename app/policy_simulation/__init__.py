"""Simulates the decisions of a policy on requests in the event log, or on given requests and replies."""

from app.policy_simulation.comparison import SimulatedRequest, SimulationSummary
from app.policy_simulation.live_requests import LiveRequest, simulate_live
from app.policy_simulation.logged_requests import simulate_logged

__all__ = ["LiveRequest", "SimulatedRequest", "SimulationSummary", "simulate_live", "simulate_logged"]
