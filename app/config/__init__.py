"""The TOML file in ``GROUNDLANE_CONFIG``: upstreams, and policies that are applied at startup.

Without the file there is one upstream, from the settings. The file names the environment variables of keys, so it
contains no secrets.
"""

from app.config.loader import load_config, parse_policies, read_config
from app.config.models import Config, Timeouts, UpstreamSpec

__all__ = ["Config", "Timeouts", "UpstreamSpec", "load_config", "parse_policies", "read_config"]
