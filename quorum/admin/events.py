"""The endpoint of events: committed transactions as they come, for a page or a script that stays connected.

Decides how records become server-sent events, and how many listen at once. A listener that comes back names
the last event it had and misses nothing; one so slow that history is dropped before it gets there is sent the
event `gone`, and begins anew. Soft state only.

Source: the HTML standard, "Server-sent events".
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

from aiohttp import web

from quorum.admin.access import is_still_allowed
from quorum.admin.changelog import HISTORY, gone
from quorum.admin.endpoint import Endpoints
from quorum.admin.reading import Says
from quorum.admin.view import BadInputError, error_answer
from quorum.changelog.files import DamagedChangelogError
from quorum.changelog.recorder import ChangeRecorder
from quorum.changelog.rows import as_json_line
from quorum.errors import shown

#: that listen at once
LISTENERS_MAX: Final = 64
#: of records that are read for a listener at once
PAGE_BYTES_MAX: Final = 256 * 1024
#: how long nothing is sent at most; what is sent then is a comment
HEARTBEAT_MS: Final = 15_000
LISTENERS: Final = web.AppKey[set[object]]("listeners")
ENDPOINTS: Final = Endpoints()
_EVENT_ID: Final = re.compile("[0-9]{1,18}", re.ASCII)


class EventsQuery(NamedTuple):
    """Where the events begin."""

    from_zxid: Annotated[int, Says("the first transaction that is wanted; -1: the next one", -1)] = -1


@ENDPOINTS.add("GET", "/v1/events", content=("text/event-stream",))
async def _get_events(request: web.Request, query: EventsQuery) -> web.StreamResponse:
    """Committed transactions as they come."""
    zxid = query.from_zxid
    history = request.app[HISTORY]
    last_event = request.headers.get("Last-Event-ID")
    if last_event is not None:
        if not _EVENT_ID.fullmatch(last_event):
            problem = f"Last-Event-ID {shown(last_event)} is not a zxid"
            raise BadInputError(problem, "send the id of the last event, or none", "Last-Event-ID")
        zxid = int(last_event) + 1
    if zxid < 0:
        zxid = history.last_zxid + 1
    if zxid < history.first_zxid:
        return gone(zxid, history.first_zxid)
    listeners = request.app[LISTENERS]
    if len(listeners) >= LISTENERS_MAX:
        return error_answer(503, f"{LISTENERS_MAX} listeners are connected", "end one, or ask another node")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if request.method != "HEAD":
        listeners.add(response)
        try:
            await _send(request, response, history, zxid)
        except ConnectionResetError:
            # The listener has gone.
            pass
        finally:
            listeners.discard(response)
    return response


async def _send(
    request: web.Request, response: web.StreamResponse, history: ChangeRecorder, zxid: int
) -> None:
    """Send events from a zxid on until the node stops, history is dropped, or the listener's right ends."""
    while not history.stopped and is_still_allowed(request):
        await history.wait_for(zxid, HEARTBEAT_MS)
        try:
            page = await history.read(
                zxid, PAGE_BYTES_MAX, lambda row: b"%d %b" % (row["zxid"], as_json_line(row))
            )
        except DamagedChangelogError:
            page = b""
            zxid = -1
        if zxid < history.first_zxid:
            await response.write(b'event: gone\ndata: {"first_retained_zxid":%d}\n\n' % history.first_zxid)
            return
        events = []
        for line in page.splitlines():
            digits, _, record = line.partition(b" ")
            zxid = int(digits) + 1
            events.append(b"id: %b\nevent: transaction\ndata: %b\n\n" % (digits, record))
        await response.write(b"".join(events) or b": nothing\n\n")
