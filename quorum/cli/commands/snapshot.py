"""`quorate snapshot`: has a node take a snapshot, and checks and shows one snapshot file.

`take` asks the admin port of the node whose state it is, and looks until it is there. `inspect` reads a file,
whose node may run: a finished snapshot never changes. Its exit codes: 0 good, 1 damaged, 2 usage. What is
found is quorum.cli.offline's.
"""

from __future__ import annotations

import argparse
import errno
import json
import time
from collections.abc import Callable
from typing import Any

from quorum.admin.client import AdminChange, ask, first_listening, get
from quorum.cli.commands.status import add_admin_option
from quorum.errors import OutcomeUnknownError, SnapshotNotTakenError, UnreachableError, UsageError, printable

#: by these PATH is no file that this user may read (EINVAL: a pipe, a device); the others are the disk's
_NO_FILE_ERRNOS = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL)
#: longer than a snapshot of a large tree takes on a busy node
TAKE_TIMEOUT_S = 600.0
TIMEOUT_S = 30.0
LOOK_PAUSE_S = 0.2
_TAKE = AdminChange(
    "POST",
    "/v1/snapshots",
    {"log_index": int},
    "the request for a snapshot",
    "ask again, which does no harm: one that was taken meanwhile is named, unless more was applied since",
)

HELP = "take a snapshot of the state, or check and show one"
DESCRIPTION = """\
take: have a running node write a snapshot of all that it has applied, and say where it is once it is
durable. If nothing was applied since its newest snapshot, that one is named and nothing is written.

inspect: check a snapshot file through all its checksums, load it as a node would, and show what it holds as
JSON; nothing is changed. PATH is the file; of a snapshots folder or a data directory the newest one is taken.
Exit codes: 0 good, 1 damaged, 2 usage."""
EXAMPLES = """\
examples:
  quorate snapshot take
  quorate snapshot take --admin http://10.0.0.3:8181 --json
  quorate snapshot inspect data/node-1/data
  quorate snapshot inspect FILE --tree | jq 'select(.path == "/brokers/ids/1")'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    taking = actions.add_parser("take", help="have a node take one", allow_abbrev=False)
    add_admin_option(taking)
    taking.add_argument("--json", action="store_true", help="print the node's answer as JSON")
    taking.set_defaults(act=_take)
    inspecting = actions.add_parser("inspect", help="check and show one", allow_abbrev=False)
    inspecting.add_argument("path", metavar="PATH", help="a snapshot file, or the folder of several")
    inspecting.add_argument("--tree", action="store_true", help="show all znodes, one JSON object a line")
    inspecting.set_defaults(act=_inspect)


def run(arguments: argparse.Namespace) -> int:
    """Do it.

    Returns:
        0: the snapshot was taken, or is good.
    """
    act: Callable[[argparse.Namespace], int] = arguments.act
    return act(arguments)


def _take(arguments: argparse.Namespace) -> int:
    arguments.admin = first_listening(arguments.admin)
    wanted = ask(arguments.admin, _TAKE, TIMEOUT_S)["log_index"]
    until_s = time.monotonic() + TAKE_TIMEOUT_S
    while (found := _look(arguments.admin, wanted)) is None:
        if time.monotonic() > until_s:
            problem = f"the snapshot of index {wanted} is still under way after {TAKE_TIMEOUT_S:g} s"
            raise OutcomeUnknownError(problem, "look for it with GET /v1/snapshots")
        time.sleep(LOOK_PAUSE_S)
    if arguments.json:
        print(json.dumps(found, sort_keys=True))
    else:
        size, path = found["size_bytes"], printable(found["path"])
        print(f"the snapshot of index {found['log_index']} is durable: {size:,} bytes in {path}")
    return 0


def _look(url: str, wanted: int) -> dict[str, Any] | None:
    """Return the newest snapshot if it has what is wanted, None while that is under way."""
    code, body = get(url, "/v1/snapshots", TIMEOUT_S)
    try:
        answer = json.loads(body)
        items, problem = answer["items"], answer["problem"]
        found = items[-1] if items and items[-1]["log_index"] >= wanted else None
    except (ValueError, KeyError, TypeError, IndexError):
        raise UnreachableError(f"{url} does not list its snapshots (HTTP {code})", _TAKE.remedy) from None
    if found is None and problem:
        raise SnapshotNotTakenError(printable(problem), "look at the disk of this node, and ask again")
    return found


def _inspect(arguments: argparse.Namespace) -> int:
    from quorum.cli.offline.snapshot import choose, inspect
    from quorum.platform.os_runtime import OsDisk

    disk = OsDisk()
    try:
        inspect(disk, choose(disk, arguments.path), print, tree=arguments.tree)
    except OSError as error:
        if error.errno not in _NO_FILE_ERRNOS:
            raise
        problem = f"{error.filename or arguments.path} cannot be read: {error.strerror}"
        raise UsageError(problem, "name a snapshot file") from error
    finally:
        # What was found comes before the error, also where both go to one file.
        print(end="", flush=True)
    return 0
