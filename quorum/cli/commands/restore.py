"""`quorate restore`: makes a backup the data directory of a node that founds a new cluster with others."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Final

from quorum.errors import QuorateError, UsageError, printable
from quorum.platform.terminal import is_terminal

HELP = "make a backup the beginning of a new cluster"
DESCRIPTION = """\
Write the data directory of one node of a new cluster, as of a point of a backup. Run it once for each
founding node, with the same BACKUP, point and attempt and the node's own node.toml; then start all of them
with `quorate serve --config NODE.TOML`, without --bootstrap. Names, addresses and members may be others than
the old cluster's.

All checksums are verified before anything is written. The new cluster has an id of its own. Ephemerals are
gone and sessions closed; zxids and session ids jump beyond those of the old cluster. Where clients used what
an earlier restore of the same backup made, restore with the next --attempt. BACKUP is a folder or a URL of
`quorate backup`. Never let clients or brokers use the old cluster and the new one at once."""
EXAMPLES = """\
examples:
  quorate restore /backups/2026-11-27 --dry-run
  quorate restore /backups/2026-11-27 --config node.toml
  quorate restore /backups/2026-11-27 --config node.toml --as-of-time 2026-11-27T21:15:00Z
  quorate restore /backups/2026-11-27 --config node.toml --as-of-zxid 6199802 --attempt 2
"""

ATTEMPT_MAX: Final = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("backup", metavar="BACKUP", help="a folder or URL of `quorate backup`")
    use = parser.add_mutually_exclusive_group(required=True)
    use.add_argument("--config", metavar="NODE.TOML", type=Path, help="whose data directory is written")
    use.add_argument("--dry-run", action="store_true", help="verify the backup and print the report")
    point = parser.add_mutually_exclusive_group()
    point.add_argument(
        "--as-of-zxid", metavar="N", type=int, help="restore the state behind this transaction"
    )
    about = "restore the state at this time, ISO 8601, UTC unless it says otherwise"
    point.add_argument("--as-of-time", metavar="TIME", help=about)
    about = "which restore of this backup this is; zxids jump by N x 2^32 (default: 1)"
    parser.add_argument("--attempt", metavar="N", type=int, default=1, help=about)
    parser.add_argument("--yes", action="store_true", help="do not ask, on a terminal")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Verify, rebuild, write and print the report."""
    from quorum.backup.manifest import restored_cluster_id
    from quorum.backup.places import taken_backup
    from quorum.backup.points import point_of, read_time, written_time
    from quorum.backup.reading import check_state, read_backup, rebuild
    from quorum.backup.replaying import ALL
    from quorum.backup.restoring import check_empty, write_data_dir
    from quorum.config.node import load_node_config
    from quorum.core.restoring import begin_anew

    attempt: int = arguments.attempt
    if not 1 <= attempt <= ATTEMPT_MAX:
        problem = f"--attempt {attempt} is not in 1 … {ATTEMPT_MAX}"
        raise UsageError(problem, "give 1 for the first restore of a backup, 2 for the second, …")
    stamp_ms = None if arguments.as_of_time is None else read_time(arguments.as_of_time)
    config = None if arguments.dry_run else load_node_config(arguments.config, os.environ, {})
    if config is not None:
        check_empty(config.node.data_dir)
    with taken_backup(arguments.backup) as folder:
        shown = printable(arguments.backup)
        manifest = read_backup(folder, shown)
        limit = point_of(manifest, arguments.as_of_zxid, stamp_ms)
        rebuilt = rebuild(folder, has_snapshot=len(manifest.files) > 1, limit=limit, shown=shown)
        if limit == ALL:
            check_state(manifest, rebuilt, shown)
    machine = rebuilt.machine
    as_of_zxid = machine.zxid
    left_out = begin_anew(machine, manifest.last_zxid, rebuilt.stamp_ms, attempt)
    cluster = manifest.cluster if config is None else config.node.cluster
    cluster_id = restored_cluster_id(manifest, cluster, as_of_zxid, machine.feature_level, attempt)
    report: dict[str, object] = {
        "as_of_zxid": as_of_zxid,
        "as_of_time": written_time(rebuilt.stamp_ms),
        "znodes": machine.tree.node_count,
        "ephemerals_left_out": left_out.ephemerals,
        "sessions_closed": left_out.sessions,
        "next_zxid": machine.zxid + 1,
        "cluster_id": cluster_id,
        "data_dir": None if config is None else str(config.node.data_dir),
    }
    if config is not None:
        _confirm(arguments, report)
        node = config.node
        write_data_dir(node.data_dir, machine, node.cluster, node.id, cluster_id)
    print(json.dumps(report) if arguments.json else _describe(report))
    return 0


def _confirm(arguments: argparse.Namespace, report: dict[str, object]) -> None:
    if arguments.yes or not is_terminal(sys.stdin):
        return
    print(_describe(report), file=sys.stderr)
    print("write this data directory? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise QuorateError("nothing was written", "answer y, or give --yes")


def _describe(report: dict[str, object]) -> str:
    target = report["data_dir"]
    rows = [
        f"state of zxid {report['as_of_zxid']}, {report['as_of_time']}: {report['znodes']:,} znodes",
        f"left out: {report['ephemerals_left_out']:,} ephemerals of {report['sessions_closed']:,} sessions",
        f"new cluster {report['cluster_id']}, next zxid {report['next_zxid']}",
        "nothing is written" if target is None else f"data directory: {printable(str(target))}",
    ]
    return "\n".join(rows)
