"""`quorate import`: moves a ZooKeeper cluster's tree into an empty cluster of Quorate."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from quorum.admin.client import checked_urls
from quorum.cli.commands.status import add_admin_ports_option, add_tls_options
from quorum.config.dialling import DEFAULT_ADMIN_URLS, read_dialling
from quorum.config.logins import read_login
from quorum.config.profiles import FILE_VARIABLE, read_profile
from quorum.errors import UsageError, printable

HELP = "copy a ZooKeeper cluster into this one, keep it in step, and cut over"
DESCRIPTION = """\
Copy the tree of a ZooKeeper (3.6 or later) into an empty cluster: data, access lists, versions, times and
zxids. Without --cutover it then follows every change until it is interrupted. With --cutover it waits until
the source is quiet, compares both trees, and opens the cluster to clients; until then it refuses their
writes. The source is never written. Killed at any moment, it goes on with the same words.
Where the admin ports want tokens this needs the role admin (quorate --token-file FILE import …).
docs/operate/migrate.md is the guide."""
EXAMPLES = """\
examples:
  quorate import --from zk1:2181,zk2:2181,zk3:2181 --from-auth super.txt
  quorate import --from zk1:2181,zk2:2181,zk3:2181 --from-auth super.txt --cutover
  quorate import --from-profile zk --from-auth super.txt         TLS, SASL: the profile has it
  quorate import --from-files /var/lib/zookeeper --cutover       files of a stopped server
"""
_QUIET_S: Final = 3.0
_TIMEOUT_S: Final = 60.0
_CREDENTIALS_MAX: Final = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--from", dest="hosts", metavar="HOST:PORT,…", help="servers of the live source")
    about = "hosts, ca, cert, key, sasl and password_file of this profile are the live source's"
    parser.add_argument("--from-profile", metavar="NAME", help=about)
    about = "dataDir of a stopped server of the source; beside --from: of one of its servers"
    parser.add_argument("--from-files", metavar="DIR", type=Path, help=about)
    about = "dataLogDir of the server of --from-files, where its zoo.cfg names one"
    parser.add_argument("--from-logs", metavar="DIR", type=Path, help=about)
    about = "lines scheme:credential that are proved to the source, as digest:super:PASSWORD"
    parser.add_argument("--from-auth", metavar="FILE", type=Path, help=about)
    add_admin_ports_option(parser, "admin ports of this cluster's nodes")
    parser.add_argument("--cutover", action="store_true", help="compare, and open this cluster to clients")
    about = f"the source must not have changed for so long (default: {_QUIET_S:g})"
    parser.add_argument("--quiet", metavar="S", type=_seconds, help=about)
    about = f"how long to wait for that (default: {_TIMEOUT_S:g})"
    parser.add_argument("--timeout", metavar="S", type=_seconds, help=about)
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    add_tls_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Import; returns 0, or 1 where source and target differ."""
    from quorum.importing.errors import DifferenceError
    from quorum.importing.running import Wanted

    profile = _profile(arguments.from_profile)
    hosts: str = arguments.hosts or profile.get("hosts", "")
    _check(arguments, hosts)
    urls = checked_urls(arguments.admin) or DEFAULT_ADMIN_URLS
    wanted = Wanted(
        hosts,
        None if arguments.from_files is None else arguments.from_files.absolute(),
        () if arguments.from_auth is None else _credentials(arguments.from_auth),
        urls,
        cutover=arguments.cutover,
        quiet_s=_QUIET_S if arguments.quiet is None else arguments.quiet,
        timeout_s=_TIMEOUT_S if arguments.timeout is None else arguments.timeout,
        tls=read_dialling(*(_path(profile, key) for key in ("ca", "cert", "key"))),
        sasl=read_login(profile.get("sasl"), _path(profile, "password_file"), ("sasl", "password_file")),
        logs=None if arguments.from_logs is None else arguments.from_logs.absolute(),
    )

    def report(fields: Mapping[str, object]) -> None:
        print(json.dumps(fields) if arguments.json else describe(fields), flush=True)

    try:
        asyncio.run(_run(wanted, report))
    except DifferenceError as error:
        report({"phase": "different", **error.report})
        raise
    return 0


def _profile(name: str | None) -> Mapping[str, str]:
    """Return the profile of the source; {} without one."""
    return {} if name is None else read_profile(name, os.environ.get(FILE_VARIABLE, ""))


def _path(profile: Mapping[str, str], key: str) -> Path | None:
    return Path(profile[key]) if key in profile else None


def _check(arguments: argparse.Namespace, hosts: str) -> None:
    """Refuse options that do not fit together."""
    from quorum.client.hosts import parse_hosts

    if not hosts and arguments.from_files is None:
        remedy = "give --from HOST:PORT,… (or hosts in the profile of --from-profile), or --from-files DIR"
        raise UsageError("nothing to import is named", remedy)
    if arguments.from_logs is not None and arguments.from_files is None:
        raise UsageError("--from-logs belongs to the files of a server", "add --from-files DIR")
    if not hosts and not arguments.cutover:
        raise UsageError("files do not change: --from-files alone needs --cutover", "add --cutover")
    if not arguments.cutover and (arguments.quiet is not None or arguments.timeout is not None):
        raise UsageError("--quiet and --timeout belong to a cutover", "add --cutover, or leave them out")
    if not hosts and arguments.from_auth is not None:
        raise UsageError("--from-auth belongs to a live source", "leave it out, or add --from HOST:PORT,…")
    try:
        parse_hosts(hosts or "localhost")
    except ValueError as error:
        raise UsageError(f"--from: {error}", "give host:port,host:port") from error


async def _run(wanted: Any, report: Any) -> None:
    from quorum.importing.running import run_import

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await run_import(wanted, report, stop)


def _credentials(path: Path) -> list[tuple[str, bytes]]:
    """Read the file of --from-auth; its values are never shown."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--from-auth {path} cannot be read: {error}", "name a file of text") from error
    found: list[tuple[str, bytes]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        scheme, colon, credential = line.strip().partition(":")
        if not colon or not scheme or not credential:
            problem = f"--from-auth {path}, line {number} is not scheme:credential"
            raise UsageError(problem, "write lines as digest:user:password")
        found.append((scheme, credential.encode()))
    if not found or len(found) > _CREDENTIALS_MAX:
        problem = f"--from-auth {path} has {len(found)} credentials, not 1 to {_CREDENTIALS_MAX}"
        raise UsageError(problem, "write lines as digest:user:password")
    return found


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 86_400:
        raise ValueError(text)
    return seconds


def describe(fields: Mapping[str, object]) -> str:
    """Lay a line of the report out for a person."""
    phase = fields["phase"]
    if phase in ("copying", "following"):
        return (
            f"{phase}: {fields['nodes']} znodes, {fields['behind']} changes behind,"
            f" source at zxid {fields['source_zxid']}"
        )
    return "\n".join(f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in fields.items())


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(printable(str(each)) for each in value)
    return "not known" if value is None else printable(str(value))
