"""The subcommand `quorate pipeline`."""
