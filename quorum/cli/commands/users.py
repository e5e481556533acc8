"""`quorate users`: who may prove a password to the nodes.

Decides which names and passwords every client hashes alike. Keeps nothing, and prints no password.
"""

from __future__ import annotations

import argparse
import re
import sys

from quorum.config.sasl_users import user_line
from quorum.errors import UsageError

HELP = "make a line of the nodes' users file"
DESCRIPTION = """\
digest prints the line of a user for the file that security.sasl_users_file of node.toml names. The password
comes from standard input, one line. The file has mode 0600; nodes read it again within a minute, or on
SIGHUP. Who reads a line can prove to be that user, as with the password."""
EXAMPLES = """\
examples:
  quorate users digest alice < password.txt >> users.digest
"""

_NAME = re.compile(r"[!-9;-~]{1,255}")
_PASSWORD = re.compile(r"[ -~]{1,1024}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    digest = actions.add_parser("digest", help="print a user's line", allow_abbrev=False)
    digest.add_argument("name", metavar="NAME", help="letters, digits and signs but the colon")


def run(arguments: argparse.Namespace) -> int:
    """Print the line.

    Returns:
        0.
    """
    if not _NAME.fullmatch(arguments.name):
        remedy = "give 1 to 255 letters, digits and signs of ASCII, without colon and space"
        raise UsageError(f"{arguments.name!r} is no name of a user", remedy)
    password = sys.stdin.readline().rstrip("\r\n")
    if not _PASSWORD.fullmatch(password):
        problem = "the password on standard input is empty, too long, or not of ASCII"
        raise UsageError(
            problem, "give one line of 1 to 1024 printable characters, which all clients hash alike"
        )
    print(user_line(arguments.name, password))
    return 0
