"""`quorate top`: the overview, topics and groups in a terminal, live or once."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quorum.admin.client import checked_brokers, checked_urls
from quorum.cli.commands.status import add_admin_ports_option, add_tls_options
from quorum.platform.terminal import is_terminal, styled

if TYPE_CHECKING:
    from quorum.doctor.doctor import Scope
    from quorum.top.frame import Line

HELP = "show nodes, brokers, topics and groups in a terminal, live"
DESCRIPTION = """\
Show the verdict of `quorate doctor`, nodes, brokers, topics with lag, and groups; what needs attention comes
first. `q` or Ctrl-C ends it. With --once or --json, or where no terminal is, it prints one frame and ends:
0 if the cluster was read, else 1."""
EXAMPLES = """\
examples:
  quorate top
  quorate top --admin http://10.0.0.1:8181,http://10.0.0.2:8181
  quorate top --once --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    add_admin_ports_option(parser)
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT,…", help="brokers to ask (default: those that are registered)"
    )
    parser.add_argument("--once", action="store_true", help="print one frame")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_tls_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    from quorum.doctor.doctor import Scope
    from quorum.top.frame import frame
    from quorum.top.looking import look_once

    urls = checked_urls(arguments.admin)
    scope = Scope(tuple(urls), checked_brokers(arguments.bootstrap))
    if not (arguments.once or arguments.json) and is_terminal(sys.stdout):
        asyncio.run(_live(scope))
        return 0
    fields = asyncio.run(look_once(scope))
    if arguments.json:
        print(json.dumps(fields))
    else:
        for line in frame(fields):
            print(styled(line.text, line.style, sys.stdout) if line.style else line.text)
    return 0


async def _live(scope: Scope) -> None:
    from quorum.top.frame import Line, fitted
    from quorum.top.looking import look_again
    from quorum.top.screen import Screen, shown_on

    seen: dict[str, Any] = {}

    def laid_out(columns: int, rows: int) -> Sequence[Line]:
        return fitted(seen, columns, rows) if seen else [Line("looking at the cluster …"[:columns])]

    screen = Screen(laid_out)

    def draw(fields: Mapping[str, Any]) -> None:
        seen.update(fields)
        screen.draw()

    with shown_on(screen) as ended:
        looking = asyncio.create_task(look_again(scope, draw))
        await asyncio.wait({ended, looking}, return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    if not looking.cancelled():
        looking.result()
