"""`quorate changelog`: shows committed transactions as a node keeps them.

`dump` prints what is retained and ends; `tail` begins with what comes next and goes on until it is
interrupted. Both read GET /v1/changelog, a page after the other. Decides the line that people read; --json
prints the node's own records. No state.

Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from quorum.admin.client import NAME_A_NODE, check_let_in, first_listening, get
from quorum.cli.commands.status import add_admin_option
from quorum.errors import Fault, QuorateError, UnreachableError, printable

#: how long one question waits for a transaction
WAIT_MS: Final = 20_000
TIMEOUT_S: Final = 30.0
#: of data, in a line for people
DATA_CHARS_MAX: Final = 60

HELP = "show committed transactions, past or as they come"
DESCRIPTION = """\
dump: print the transactions that a node retains, from --from on, and end.

tail: print transactions as they are committed, from --from on if it is given, until it is interrupted.

Each node keeps its own history and gives the same records; one that received a snapshot begins there."""
EXAMPLES = """\
examples:
  quorate changelog tail
  quorate changelog dump --from 1000
  quorate changelog dump --json --admin http://10.0.0.3:8181
"""


class HistoryGoneError(QuorateError):
    """The node does not retain the transaction that is asked for."""

    fault = Fault.OPERATOR

    def __init__(self, problem: str, remedy: str, first_zxid: int) -> None:
        super().__init__(problem, remedy)
        self.first_zxid = first_zxid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    whats: dict[str, tuple[str, Callable[[argparse.Namespace], None]]] = {
        "dump": ("print what is retained", _dump),
        "tail": ("print what comes", _tail),
    }
    for name, (what, act) in whats.items():
        action = actions.add_parser(name, help=what, allow_abbrev=False)
        action.add_argument("--from", dest="from_zxid", metavar="ZXID", type=_zxid, help="the first one")
        add_admin_option(action)
        action.add_argument("--json", action="store_true", help="print the records, one JSON object a line")
        action.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> int:
    """Print; returns 0."""
    arguments.admin = first_listening(arguments.admin)
    act: Callable[[argparse.Namespace], None] = arguments.act
    act(arguments)
    return 0


def _dump(arguments: argparse.Namespace) -> None:
    zxid = arguments.from_zxid
    if zxid is None:
        zxid = first_zxid(arguments.admin)
    while page := _page(arguments.admin, zxid, 0):
        _print(page, as_json=arguments.json)
        zxid = page[-1]["zxid"] + 1


def _tail(arguments: argparse.Namespace) -> NoReturn:
    zxid = arguments.from_zxid
    if zxid is None:
        zxid = _status_zxid(arguments.admin) + 1
    while True:
        page = _page(arguments.admin, zxid, WAIT_MS)
        _print(page, as_json=arguments.json)
        if page:
            zxid = page[-1]["zxid"] + 1


def first_zxid(url: str) -> int:
    """Ask a node for the first zxid that it retains."""
    try:
        _page(url, 0, 0)
    except HistoryGoneError as error:
        return error.first_zxid
    return 0


def _status_zxid(url: str) -> int:
    from quorum.admin.client import get_status

    zxid = get_status(url, TIMEOUT_S).get("zxid")
    return zxid if isinstance(zxid, int) else 0


def _page(url: str, zxid: int, wait_ms: int) -> list[dict[str, Any]]:
    """Ask for records."""
    code, body = get(url, f"/v1/changelog?from_zxid={zxid}&wait_ms={wait_ms}", TIMEOUT_S + wait_ms / 1000)
    check_let_in(url, code, body)
    try:
        answer = [json.loads(line) for line in body.splitlines()]
        if code == 410:
            [problem] = answer
            raise HistoryGoneError(
                printable(str(problem["error"])),
                printable(str(problem["remedy"])),
                problem["first_retained_zxid"],
            )
        if code == 200 and all(isinstance(row["zxid"], int) for row in answer):
            return answer
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UnreachableError(f"{url} does not answer with a change log (HTTP {code})", NAME_A_NODE)


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    for row in rows:
        for line in [json.dumps(row, sort_keys=True)] if as_json else _lines(row):
            print(line)
    sys.stdout.flush()


def _lines(row: dict[str, Any]) -> Iterator[str]:
    from quorum.backup.points import written_time

    # As `quorate restore --as-of-time` takes it.
    when = written_time(row["ts"])
    head = f"zxid {row['zxid']}  term {row['term']}  {when}  session 0x{row['session_id']:x}"
    changes = row["changes"]
    yield f"{head}  node {row['node_id']}" + ("" if changes else "  (no change)")
    for change in changes:
        images = f"{_shown(change['before'])} -> {_shown(change['after'])}"
        yield f"  {change['op']} {printable(change['path'])}  version {change['version']}  {images}"


def _shown(image: str | None) -> str:
    """Return data as people read it, shortened."""
    if image is None:
        return "-"
    text = printable(base64.b64decode(image).decode("utf-8", "backslashreplace"))
    return repr(text if len(text) <= DATA_CHARS_MAX else text[: DATA_CHARS_MAX - 1] + "…")


def _zxid(text: str) -> int:
    """Read a zxid, decimal or as 0x…."""
    zxid = int(text, 0)
    if not 0 <= zxid < 1 << 63:
        raise ValueError(text)
    return zxid
