"""The engine of `quorate shell`: reads and changes znodes by hand, one command or interactively.

`commands` parses words (pure), `execute` runs a command over a client, `render` turns results into text or
JSON (pure), and `engine` owns the terminal and the event loop. `run` is the door.
"""

from quorum.cli.shell.engine import run

__all__ = ["run"]
