"""`quorate journal`: judges and shows the journal of a data directory that no node uses.

Exit codes: 0 a start works, 1 a start would refuse, 2 usage, 3 a start works, by an older snapshot than the
newest.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from quorum.errors import UsageError, printable

if TYPE_CHECKING:
    from quorum.platform.runtime import Disk

HELP = "verify or show the journal of a node that does not run"
DESCRIPTION = """\
Look at a data directory offline; nothing in it is changed, and no node can use it meanwhile.
verify starts from it without keeping what a start writes, and says what the start says. dump prints the
records of the journal up to the first bad byte, one JSON object a line.

Exit codes: 0 a start works (a torn end is no damage), 1 a start would refuse, 2 usage. Of verify alone 3: the
newest snapshot is damaged, but a start works with the one before it."""
EXAMPLES = """\
examples:
  quorate journal verify data/node-1/data
  quorate journal dump data/node-1/data | jq 'select(.index >= 120)'
"""

#: exit code of damage that a start gets by
FALLBACK = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, what in (("verify", "judge it as a start would"), ("dump", "print its records")):
        action = actions.add_parser(name, help=what, allow_abbrev=False)
        action.add_argument("data_dir", metavar="DATA_DIR", help="the node.data_dir of a node")


def run(arguments: argparse.Namespace) -> int:
    """Do it.

    Returns:
        0: a start works; FALLBACK: it works without the newest snapshot.
    """
    from quorum.cli.offline.directory import unused
    from quorum.cli.offline.journal import dump

    data_dir = arguments.data_dir.rstrip("/") or "/"
    try:
        with unused(data_dir) as disk:
            if arguments.action == "dump":
                dump(disk, data_dir, print)
                return 0
            return _verify(disk, data_dir)
    except PermissionError as error:
        problem = f"{error.filename} cannot be read: {error.strerror}"
        raise UsageError(problem, "run it as the user of the node") from error
    finally:
        # What was found comes before the error, also where both go to one file.
        print(end="", flush=True)


def _verify(disk: Disk, data_dir: str) -> int:
    from quorum.cli.offline.journal import verify

    storage = verify(disk, data_dir, lambda line: print(printable(line)))
    found, mark = storage.recovered, storage.mark
    live = f"{found.first_index}-{found.last_index}" if found.last_index >= found.first_index else "empty"
    print(f"snapshot: {f'up to entry {mark.snapshot_index}' if mark else 'none'}")
    print(f"live log: {live}; ends with entry {found.last_index} of term {found.last_term}")
    print(f"hard state: term {found.hard_state.term}, vote {found.hard_state.voted_for or 'nobody'}")
    fallback = storage.snapshots.broken
    print("damaged, but a start works" if fallback else "good")
    return FALLBACK if fallback else 0
