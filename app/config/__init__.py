"""The TOML configuration file named in ``GROUNDLANE_CONFIG``. It defines upstreams, and policies to apply at startup.
Without a file, the settings define a single upstream. The file doesn't contain API keys, only the names of the
environment variables or secrets that hold them."""

from app.config.loader import load_config, parse_policies, read_config
from app.config.models import Config, Timeouts, UpstreamSpec

__all__ = ["Config", "Timeouts", "UpstreamSpec", "load_config", "parse_policies", "read_config"]
