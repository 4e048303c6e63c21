"""The TOML file that ``GROUNDLANE_CONFIG`` names: several upstreams, and policies that stand from the start.

Without the file there is one upstream, as the settings describe it. Keys are named by environment variables, so that
the file holds no secret.
"""

from app.config.loader import load_config, parse_policies, read_config
from app.config.models import Config, Timeouts, UpstreamSpec

__all__ = ["Config", "Timeouts", "UpstreamSpec", "load_config", "parse_policies", "read_config"]
