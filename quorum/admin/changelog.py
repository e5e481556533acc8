"""The endpoint of the change log: committed transactions from a zxid on.

Decides what a well-formed request is, and tells history that is gone from history that has not come yet.
What a record is, and how long it is kept, is quorum.changelog's. No state.

Source: docs/pipeline.md, "Change log"; RFC 9110, "410 Gone".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import web

from quorum.admin.parameters import Parameter, read_query
from quorum.admin.view import error_answer, part
from quorum.changelog.files import DamagedChangelogError
from quorum.changelog.past import Visitor
from quorum.changelog.rows import ENCODERS, JSON_LINES, MSGPACK, ChangelogRow

#: of one answer
BYTES_MAX: Final = 8 * 1024 * 1024
#: of one long poll
WAIT_MS_MAX: Final = 60_000
#: header: the last zxid that the node could have answered with
LAST_ZXID_HEADER: Final = "Quorate-Last-Zxid"
PARAMETERS: Final = (
    Parameter("from_zxid", int, "the first transaction that is wanted; 0 is the founding"),
    Parameter(
        "bytes_max", int, "size of the answer, unless its first record is larger", 1 << 20, 1, BYTES_MAX
    ),
    Parameter("wait_ms", int, "how long to wait for a transaction if there is none yet", 0, 0, WAIT_MS_MAX),
)


class History(Protocol):
    """A node's change log."""

    @property
    def first_zxid(self) -> int:
        """First zxid that is retained, or will be."""

    @property
    def last_zxid(self) -> int:
        """Last zxid that can be read; -1: there is none."""

    @property
    def stopped(self) -> bool:
        """Whether nothing more will come: the node stops."""

    async def wait_for(self, zxid: int, wait_ms: int) -> None:
        """Return once a zxid can be read, or after a time."""

    async def read(self, from_zxid: int, bytes_max: int, encode: Callable[[ChangelogRow], bytes]) -> bytes:
        """Return encoded records from a zxid on."""

    async def visit_changes(self, from_zxid: int, to_zxid: int, visit: Visitor) -> int:
        """Pass over the changes of transactions, both ends inclusive; return the last zxid that was there."""


HISTORY: Final = web.AppKey[History]("history")


async def get_changelog(request: web.Request) -> web.Response:
    """Answer with records, as msgpack or as JSON lines; an empty body says that there is none yet."""
    query = read_query(request, PARAMETERS)
    from_zxid, bytes_max, wait_ms = (int(query[name]) for name in ("from_zxid", "bytes_max", "wait_ms"))
    history = part(request, HISTORY)
    if wait_ms:
        await history.wait_for(from_zxid, wait_ms)
    content_type = MSGPACK if MSGPACK in request.headers.get("Accept", "") else JSON_LINES
    # Taken before: what is retained rises, and so does what there is.
    last_zxid = history.last_zxid
    if from_zxid < history.first_zxid:
        return gone(from_zxid, history.first_zxid)
    try:
        body = await history.read(from_zxid, bytes_max, ENCODERS[content_type])
    except DamagedChangelogError as error:
        return gone(from_zxid, max(error.next_zxid, history.first_zxid))
    if not body and from_zxid < history.first_zxid:
        return gone(from_zxid, history.first_zxid)
    return web.Response(body=body, headers={"Content-Type": content_type, LAST_ZXID_HEADER: str(last_zxid)})


def gone(zxid: int, first_zxid: int, field: str = "from_zxid") -> web.Response:
    """Answer that history was dropped, and where it begins now."""
    return error_answer(
        410,
        f"{field} = {zxid}: this node's history begins with zxid {first_zxid}",
        f"ask the other nodes, or begin with {field}={first_zxid}",
        first_retained_zxid=first_zxid,
    )
