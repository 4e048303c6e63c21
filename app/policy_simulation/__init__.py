"""What a policy would have decided: of requests in the event log, or of requests that are given."""

from app.policy_simulation.comparison import Comparison, Tally
from app.policy_simulation.live_requests import GivenRequest, simulate_given
from app.policy_simulation.logged_requests import simulate_logged

__all__ = ["Comparison", "GivenRequest", "Tally", "simulate_given", "simulate_logged"]
