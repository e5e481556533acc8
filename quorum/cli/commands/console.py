"""`quorate console`: serves pages that show a cluster, until a signal."""

from __future__ import annotations

import argparse
import asyncio
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from quorum.admin.client import checked_brokers, checked_urls
from quorum.cli.commands.status import add_admin_ports_option, add_tls_options
from quorum.errors import UsageError
from quorum.platform.logs import TEXT, add_log_format, set_up_logging

HELP = "serve pages that show a cluster"
DESCRIPTION = """\
Serve pages that show nodes, brokers, topics, groups and znodes, now and as they were, and change them. The
console is a process of its own with no rights of its own. It asks the admin ports with the token of
--token-file, or the one that the browser sends. It starts with or without a cluster. Where --host is not
loopback, --cert and --key are also what it serves pages with, by https."""
EXAMPLES = """\
examples:
  quorate console
  quorate console --admin http://10.0.0.1:8181,http://10.0.0.2:8181 --read-only
  quorate console --port 0
  quorate console --host 10.0.0.5 --ca ca.pem --cert console.pem --key console.key
"""
DEFAULT_PORT: Final = 8080


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    add_admin_ports_option(parser, "admin ports of all nodes")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT,…", help="brokers to ask (default: those that are registered)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    about = f"port to listen on; 0: a free one (default: {DEFAULT_PORT})"
    parser.add_argument("--port", metavar="N", type=int, default=DEFAULT_PORT, help=about)
    parser.add_argument("--read-only", action="store_true", help="refuse every change")
    about = "let pages read records of topics also where --host is not loopback"
    parser.add_argument("--records", action="store_true", help=about)
    about = "folder whose folders are results of `make chaos` and of Spark jobs"
    parser.add_argument("--results", metavar="DIR", type=Path, help=about)
    add_tls_options(parser)
    add_log_format(parser, "how the log is written: text, or json (default: text)")
    # With --host, the certificate is also what browsers see; then it may be without --ca.
    parser.set_defaults(serves_tls=True)
    parser.add_argument("--parent-fd", type=int, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    from quorum.console.server import ConsoleOptions

    if not 0 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port} is out of range", "give 0 to 65535")
    if arguments.results is not None and not arguments.results.is_dir():
        raise UsageError(f"--results {arguments.results} is no folder", "name one that holds results of runs")
    is_local = _is_loopback(arguments.host)
    urls = checked_urls(arguments.admin)
    options = ConsoleOptions(
        tuple(urls),
        checked_brokers(arguments.bootstrap),
        arguments.host,
        arguments.port,
        arguments.read_only,
        arguments.records or is_local,
        arguments.results,
        None if arguments.cert is None or is_local else (arguments.cert, arguments.key),
    )
    set_up_logging(arguments.log_format or TEXT, "console")
    asyncio.run(_serve(options, arguments.parent_fd))
    return 0


async def _serve(options: object, parent_fd: int | None) -> None:
    from quorum.console.server import ConsoleOptions, serving
    from quorum.platform.foreground import stop_requests
    from quorum.platform.service_manager import telling

    assert isinstance(options, ConsoleOptions)
    with stop_requests(parent_fd, lambda: None) as stop:
        async with serving(options) as console:
            print(f"console: {console.url}", flush=True)
            either: set[asyncio.Future[Any]] = {stop, console.watching}
            async with telling(lambda: (True, console.url)):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if console.watching.done():
                console.watching.result()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
