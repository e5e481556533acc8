"""`quorate snapshot`: checks and shows one snapshot file.

Exit codes: 0 good, 1 damaged, 2 usage. A finished snapshot never changes, so its node may run. What is found
and how it is told is quorum.offline's.
"""

from __future__ import annotations

import argparse
import errno

from quorum.errors import UsageError

#: by these PATH is no file that this user may read (EINVAL: a pipe, a device); the others are the disk's
_NO_FILE_ERRNOS = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL)

HELP = "check and show a snapshot of the state"
DESCRIPTION = """\
Check a snapshot file through all its checksums, load it as a node would, and show what it holds; nothing is
changed. PATH is the file; of a snapshots folder or a data directory the newest one is taken. Exit codes: 0
good, 1 damaged, 2 usage."""
EXAMPLES = """\
examples:
  quorate snapshot inspect data/node-1/data
  quorate snapshot inspect data/node-1/data/snapshots/FILE --tree
  quorate snapshot inspect FILE --path /brokers/ids/1 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action and its options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    inspecting = actions.add_parser("inspect", help="check and show one", allow_abbrev=False)
    inspecting.add_argument("path", metavar="PATH", help="a snapshot file, or the folder of several")
    what = inspecting.add_mutually_exclusive_group()
    what.add_argument("--path", dest="znode", metavar="ZNODE", help="show one znode: Stat, ACL, data")
    what.add_argument("--tree", action="store_true", help="list all znodes")
    inspecting.add_argument("--json", action="store_true", help="print JSON (--tree: one object a line)")


def run(arguments: argparse.Namespace) -> int:
    """Do it.

    Returns:
        0: the snapshot is good.

    Raises:
        UsageError: there is no such file or znode, or it may not be read.
        SnapshotDamagedError: what is damaged; after what can be read was printed.
    """
    from quorum.offline.directory import ReadOnlyDisk
    from quorum.offline.snapshot import choose
    from quorum.offline.snapshot_text import inspection_lines

    disk = ReadOnlyDisk()
    znode, tree = arguments.znode, arguments.tree
    try:
        path = choose(disk, arguments.path)
        for line in inspection_lines(disk, path, znode=znode, tree=tree, as_json=arguments.json):
            print(line)
    except OSError as error:
        if error.errno not in _NO_FILE_ERRNOS:
            raise
        problem = f"{error.filename or arguments.path} cannot be read: {error.strerror}"
        raise UsageError(problem, "name a snapshot file") from error
    finally:
        # What was found comes before the error, also where both go to one file.
        print(end="", flush=True)
    return 0
