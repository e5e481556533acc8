"""`python -m quorum` and the command `quorate`: the command line.

Modules take a moment to load; Ctrl-C in it ends the process without a word, and not with a traceback of an
import.
"""

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from quorum.cli import main as cli

if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
