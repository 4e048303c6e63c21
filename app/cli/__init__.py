"""The subcommands of ``groundlane``, one module each. A command imports its dependencies only when it runs."""
