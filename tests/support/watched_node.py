"""Runs `quorate serve` as it is shipped, with what only a test needs around it.

    python -m tests.support.watched_node [--watch FILE] [--snapshot-log-bytes N] [--break RULE] -- serve …

`--watch` has every disk call reported to a file that tests.support.disk_watch made, `--snapshot-log-bytes`
makes snapshots and compaction frequent, `--break` switches a rule off, to see whether a test notices. What
stands behind `--` is the command line of `quorate`.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from tests.support.broken_rules import BREAKS
from tests.support.disk_watch import DiskReporter, Phase, WatchedDisk


def watch_disk(path: Path) -> None:
    """Have the node of this process use a watched disk."""
    import quorum.node.node
    from quorum.node.member import QuorumMember
    from quorum.node.snapshotting import LastSnapshot, Snapshotter
    from quorum.raft.journal.journal import Journal
    from quorum.raft.snapshots.snapshots import SnapshotStore

    reporter = DiskReporter(path)
    reporter.set_active(Phase.START, True)
    setattr(quorum.node.node, "OsDisk", lambda: WatchedDisk(reporter))  # noqa: B010 - no part of its interface
    for owner, name, phase in (
        (QuorumMember, "__init__", Phase.START),
        (Journal, "remove", Phase.COMPACTION),
        (SnapshotStore, "remove", Phase.COMPACTION),
    ):
        setattr(owner, name, reporter.during(phase, getattr(owner, name)))
    installed = Snapshotter.installed

    def end_install(self: Snapshotter, covered: LastSnapshot) -> None:
        reporter.set_active(Phase.INSTALL, False)
        installed(self, covered)

    Snapshotter.installed = end_install  # type: ignore[method-assign]


def main() -> int:
    """Run the node of the command line."""
    parser = argparse.ArgumentParser(prog="watched_node", description=__doc__)
    parser.add_argument("--watch", type=Path)
    parser.add_argument("--snapshot-log-bytes", type=int)
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS))
    parser.add_argument("command", nargs="+", help="the command line of quorate")
    arguments = parser.parse_args()

    import quorum.node.node
    from quorum.cli.main import main as quorate
    from quorum.node.member import QuorumMember, Sizes

    if arguments.watch is not None:
        watch_disk(arguments.watch)
    if arguments.snapshot_log_bytes is not None:
        sizes = Sizes(snapshot_log_bytes=arguments.snapshot_log_bytes)
        member = partial(QuorumMember, sizes=sizes)
        setattr(quorum.node.node, "QuorumMember", member)  # noqa: B010 - no part of its interface
    if arguments.broken is not None:
        BREAKS[arguments.broken]()
    return quorate(arguments.command)


if __name__ == "__main__":
    sys.exit(main())
