"""`quorate backup`: copies the state of a live cluster, and the log behind it, to a folder or a URL."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from quorum.admin.client import checked_urls
from quorum.cli.commands.status import add_admin_ports_option, add_tls_options
from quorum.config.dialling import DEFAULT_ADMIN_URLS
from quorum.errors import printable

if TYPE_CHECKING:
    from quorum.backup.manifest import BackupManifest

HELP = "back a live cluster up"
DESCRIPTION = """\
Copy the state of a live cluster to TARGET, with the log behind it, from which `quorate restore` can stop at
any transaction. Everything that was acknowledged before the command began is in it. Clients go on meanwhile.
The files are read back before the report is printed. TARGET is a folder that is missing or empty, or a URL
(s3://, gs://, …; pip install 'quorate[backup]' and the driver of that scheme).

Where the admin ports want tokens this needs the role admin (quorate --token-file FILE backup …). What is
written holds all data, whatever access lists say: keep it as you keep the data directories."""
EXAMPLES = """\
examples:
  quorate backup /backups/2026-11-27
  quorate backup /backups/2026-11-27 --admin http://10.0.0.1:8181,http://10.0.0.2:8181 --json
  quorate backup s3://bucket/quorate/2026-11-27
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("target", metavar="TARGET", help="a folder that is missing or empty, or a URL")
    add_admin_ports_option(parser, "admin ports of nodes, asked in this order")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_tls_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Take it, verify it and print the report."""
    from quorum.backup.places import new_backup
    from quorum.backup.taking import take

    urls = checked_urls(arguments.admin) or DEFAULT_ADMIN_URLS
    with new_backup(arguments.target) as folder:
        manifest = take(urls, folder)
    report = _report(arguments.target, manifest)
    if arguments.json:
        print(json.dumps(report))
    else:
        first, last = (f"zxid {report[f'{end}_zxid']} ({report[f'{end}_time']})" for end in ("first", "last"))
        size = f"{report['znodes']:,} znodes, {report['bytes']:,} bytes"
        print(f"backed up {size}, to {printable(arguments.target)}")
        print(f"it can be restored to any point from {first} to {last}")
    return 0


def _report(target: str, manifest: BackupManifest) -> dict[str, object]:
    from quorum.backup.manifest import encode_manifest
    from quorum.backup.points import written_time

    return {
        "target": target,
        "cluster_id": manifest.cluster_id,
        "first_zxid": manifest.first_zxid,
        "last_zxid": manifest.last_zxid,
        "first_time": written_time(manifest.first_ms),
        "last_time": written_time(manifest.last_ms),
        "znodes": manifest.znodes,
        "bytes": sum(each.size_bytes for each in manifest.files) + len(encode_manifest(manifest)),
    }
