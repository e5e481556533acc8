"""The endpoint of the change log: committed transactions from a zxid on.

Decides what a well-formed request is, and tells history that is gone from history that has not come yet.
What a record is, and how long it is kept, is quorum.changelog's. No state.

Source: docs/clients/spark.md, "Change log"; RFC 9110, "410 Gone".
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from aiohttp import web

from quorum.admin.endpoint import Endpoints
from quorum.admin.reading import Says
from quorum.admin.view import error_answer
from quorum.changelog.files import DamagedChangelogError
from quorum.changelog.recorder import ChangeRecorder
from quorum.changelog.rows import ENCODERS, JSON_LINES, MSGPACK

#: of one answer
BYTES_MAX: Final = 8 * 1024 * 1024
#: of one long poll
WAIT_MS_MAX: Final = 60_000
#: header: the last zxid that the node could have answered with
LAST_ZXID_HEADER: Final = "Quorate-Last-Zxid"
ENDPOINTS: Final = Endpoints()
HISTORY: Final = web.AppKey[ChangeRecorder]("history")


class ChangelogQuery(NamedTuple):
    """Which transactions are wanted."""

    from_zxid: Annotated[int, Says("the first transaction that is wanted; 0 is the founding")]
    bytes_max: Annotated[int, Says("size of the answer, unless its first record is larger", 1, BYTES_MAX)] = (
        1 << 20
    )
    wait_ms: Annotated[
        int, Says("how long to wait for a transaction if there is none yet", 0, WAIT_MS_MAX)
    ] = 0


@ENDPOINTS.add("GET", "/v1/changelog", content=(JSON_LINES, MSGPACK))
async def _get_changelog(request: web.Request, query: ChangelogQuery) -> web.Response:
    """Committed transactions from a zxid on.

    As msgpack or as JSON lines; an empty body says that there is none yet.
    """
    from_zxid, bytes_max, wait_ms = query
    history = request.app[HISTORY]
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
