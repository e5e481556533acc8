"""The command line: subcommands, the shell, and tools for stopped nodes."""
