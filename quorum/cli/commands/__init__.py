"""The subcommands of `quorate`, one module each, in the shape that `quorum.cli.main.Command` describes.

A module is cheap to import: what only its `run` needs (uvloop, the node, the shell) is imported there, so
that `quorate --help` and shell completion answer at once.
"""
