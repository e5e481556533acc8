"""`quorate journal`: judges and shows the journal of a data directory that no node uses.

Exit codes: 0 a start works and nothing is damaged (a torn end is no damage: the next start cuts it off), 1 a
start would refuse (verify) or not everything can be read (dump), 2 usage, which includes a directory that a
node uses, 3 something is damaged, but a start works by falling back and loses nothing (verify only). What is
found and how it is told is quorum.cli.offline's.
"""

from __future__ import annotations

import argparse

from quorum.errors import UsageError

HELP = "verify or show the journal of a node that does not run"
DESCRIPTION = """\
Look at the journal of a data directory offline; nothing in it is changed, and no node can use it meanwhile.
verify judges journal, snapshots and identity as a start would. dump prints every record that can be read,
also behind damage.

Exit codes: 0 a start works and nothing is damaged (a torn end is none), 1 a start would refuse (dump: what is
damaged cannot be read), 2 usage, 3 something is damaged, but a start works by falling back (verify only)."""
EXAMPLES = """\
examples:
  quorate journal verify data/node-1/data
  quorate journal dump data/node-1/data --from 120 --to 130 --values
  quorate journal dump data/node-1/data --json | head
"""

#: exit code of damage that a start gets by
FALLBACK = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verifying = actions.add_parser("verify", help="judge it as a start would", allow_abbrev=False)
    dumping = actions.add_parser("dump", help="print its records", allow_abbrev=False)
    dumping.add_argument("--from", dest="first", type=int, metavar="INDEX", help="first log index to show")
    dumping.add_argument("--to", dest="last", type=int, metavar="INDEX", help="last log index to show")
    dumping.add_argument(
        "--values", action="store_true", help="show the commands of batches, with their data"
    )
    for each in (verifying, dumping):
        each.add_argument("data_dir", metavar="DATA_DIR", help="the node.data_dir of a node")
        each.add_argument("--json", action="store_true", help="print JSON (dump: one object a line)")


def run(arguments: argparse.Namespace) -> int:
    """Do it.

    Returns:
        0: everything is good; FALLBACK: not everything, but a start works.

    Raises:
        UsageError: no data directory, in use, may not be read, or of another version.
        DataDirError: what is damaged; after everything was printed.
    """
    from quorum.cli.offline.directory import unused
    from quorum.cli.offline.journal import verify
    from quorum.cli.offline.journal_text import dump_lines, verification_lines

    data_dir = arguments.data_dir.rstrip("/") or "/"
    as_json = arguments.json
    bounds = {} if arguments.action == "verify" else _bounds(arguments)
    code = 0
    try:
        with unused(data_dir) as disk:
            if arguments.action == "verify":
                found = verify(disk, data_dir)
                code = FALLBACK if found.verdict == "fallback" else 0
                lines = verification_lines(found, as_json=as_json)
            else:
                lines = dump_lines(disk, data_dir, values=arguments.values, as_json=as_json, **bounds)
            for line in lines:
                print(line)
    except PermissionError as error:
        problem = f"{error.filename} cannot be read: {error.strerror}"
        raise UsageError(problem, "run it as the user of the node") from error
    finally:
        # What was found comes before the error, also where both go to one file.
        print(end="", flush=True)
    return code


def _bounds(arguments: argparse.Namespace) -> dict[str, int | None]:
    """Return the range of log indexes."""
    first, last = arguments.first, arguments.last
    if first is not None and last is not None and first > last:
        raise UsageError(f"--from {first} --to {last} is no range", "give the lower log index first")
    return {"first": first, "last": last}
