"""What a policy would have decided: of requests in the event log, or of requests that are given."""

from app.simulation.comparing import Comparison, Tally
from app.simulation.given import GivenRequest, simulate_given
from app.simulation.logged import simulate_logged

__all__ = ["Comparison", "GivenRequest", "Tally", "simulate_given", "simulate_logged"]
