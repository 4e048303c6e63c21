"""The subcommands of ``groundlane``, one module each. They import their dependencies only when they run."""
