"""The subcommands that brokers add to `quorate`; kio is imported only when one of them runs."""
