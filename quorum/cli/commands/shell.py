"""`quorate shell`: reads and changes znodes by hand, one command or interactively."""

from __future__ import annotations

import argparse

HELP = "read and change znodes"
DESCRIPTION = (
    "Connect to the quorum as a ZooKeeper client and run one COMMAND, or ask for commands until exit."
)
EXAMPLES = """\
examples:
  quorate shell                                     interactive; `help` lists the commands
  quorate shell create /app hello
  quorate shell --hosts 10.0.0.1:2181,10.0.0.2:2181 get /app
"""

DEFAULT_HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options and the command."""
    parser.add_argument(
        "--hosts",
        metavar="H:P,…",
        default=DEFAULT_HOSTS,
        help=f"client ports of the quorum (default: {DEFAULT_HOSTS})",
    )
    parser.add_argument("--json", action="store_true", help="print results as JSON")
    parser.add_argument(
        "words", metavar="COMMAND", nargs=argparse.REMAINDER, help="what to do, with its arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    """Hand over to the shell; returns its exit code."""
    from quorum.cli.shell import run as run_shell

    return run_shell(arguments.hosts, arguments.words, as_json=arguments.json)
