"""Endpoints that show a node's own state: sessions, connections, watches, snapshots, journal, settings.

Decides pages and names; what is shown is the node's, at the moment of the question. No state.

Source: docs/http.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from aiohttp import web

from quorum.admin.endpoint import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, fields, list_of, nullable, page_of
from quorum.admin.parameters import Parameter, read_query
from quorum.admin.view import error_answer, json_answer, part
from quorum.changelog.past import Live, PastNode
from quorum.client import Stat
from quorum.errors import QuorateError

log = logging.getLogger("quorate.admin")

LIMIT_MAX: Final = 1000
LIMIT: Final = Parameter("limit", int, "items of a page", 100, 1, LIMIT_MAX)
AFTER_ID: Final = Parameter("after", int, "items behind this one; next_after of the page before", -1, -1)
AFTER_NAME: Final = Parameter("after", str, "items behind this one; next_after of the page before", "")
SNAPSHOT_NAME: Final = Parameter("name", str, "of a snapshot, as listed", pattern="[0-9a-z.-]{1,100}")
SESSION: Final = fields(
    session_id=INTEGER, timeout_ms=INTEGER, node_id=INTEGER, ephemerals=INTEGER, connected_here=BOOLEAN
)
CONNECTION: Final = fields(
    connection_id=INTEGER,
    address=STRING,
    session_id=INTEGER,
    timeout_ms=INTEGER,
    outstanding=INTEGER,
    requests_received=INTEGER,
    packets_sent=INTEGER,
)
WATCHED: Final = fields(path=STRING, session_ids=list_of(INTEGER))
SNAPSHOT: Final = fields(name=STRING, log_index=INTEGER, term=INTEGER, size_bytes=INTEGER, path=STRING)
JOURNAL: Final = fields(
    first_index=INTEGER,
    durable_index=INTEGER,
    commit_index=INTEGER,
    applied_index=INTEGER,
    queued_bytes=INTEGER,
    written_bytes=INTEGER,
    fsyncs=INTEGER,
    write_p50_ms=NUMBER,
    write_p99_ms=NUMBER,
    changelog_first_zxid=INTEGER,
    changelog_last_zxid=INTEGER,
    changelog_bytes=INTEGER,
)
CONFIG: Final = fields(
    node=OBJECT, listen=OBJECT, members=OBJECT, security=OBJECT, raft=OBJECT, limits=OBJECT
)
LEADER: Final = fields(leader_id=nullable("integer"), term=nullable("integer"))

Item = Mapping[str, object]


class StateView(Protocol):
    """A node's own state; every call comes from its loop, and is short."""

    @property
    def zxid(self) -> int:
        """The last transaction that is applied."""

    def znode(self, path: str) -> tuple[bytes | None, Stat, Sequence[str]] | int:
        """Return data, Stat and children's names of a node, or ZooKeeper's code of an error."""

    def live_page(self, after: str, count: int) -> Live:
        """Return the nodes behind a path, as `past.live_page` does."""

    def past_node(self, path: str, *, with_names: bool) -> PastNode:
        """Return a node from which the changes since a transaction can be undone."""

    def sessions(self, after: int, limit: int) -> list[Mapping[str, object]]:
        """Return sessions by rising id, each as SESSION."""

    def connections(self, after: int, limit: int) -> list[Mapping[str, object]]:
        """Return connections by rising id, each as CONNECTION."""

    def watches(self, after: str, limit: int) -> list[Mapping[str, object]]:
        """Return watched paths by name, each as WATCHED."""

    def snapshots(self) -> Mapping[str, object]:
        """Return what SNAPSHOTS has, the oldest first."""

    def snapshot_file(self, name: str) -> Iterator[bytes] | None:
        """Return the bytes of a snapshot that is listed, to be read in one thread at a time."""

    def journal(self) -> Item:
        """Return what JOURNAL has."""

    def command_names(self) -> list[str]:
        """Return the names of ZooKeeper's commands that are answered."""

    async def command(self, name: str) -> Mapping[str, object] | None:
        """Answer one of them; None if there is none of that name."""

    def config(self) -> Item:
        """Return the settings in force, secrets masked."""


STATE: Final = web.AppKey[StateView]("state")


def page(items: Sequence[Item], key: str, limit: int) -> web.Response:
    """Answer with a page.

    Args:
        items: one more than `limit`, if there are so many.
        key: the field whose value the next page comes behind.
        limit: items of a page.
    """
    kept = items[:limit]
    return json_answer({"items": list(kept), "next_after": kept[-1][key] if len(items) > limit else None})


def names_behind(names: Iterable[str], after: str, limit: int) -> list[str]:
    """Return the names of a page, and one more if there is one, in order."""
    return sorted(name for name in names if name > after)[: limit + 1]


async def get_sessions(request: web.Request) -> web.Response:
    """List the sessions of the cluster."""
    query = read_query(request, (LIMIT, AFTER_ID))
    limit = int(query["limit"])
    return page(part(request, STATE).sessions(int(query["after"]), limit + 1), "session_id", limit)


async def get_connections(request: web.Request) -> web.Response:
    """List the client connections of this node."""
    query = read_query(request, (LIMIT, AFTER_ID))
    limit = int(query["limit"])
    return page(part(request, STATE).connections(int(query["after"]), limit + 1), "connection_id", limit)


async def get_watches(request: web.Request) -> web.Response:
    """List what the clients of this node watch."""
    query = read_query(request, (LIMIT, AFTER_NAME))
    limit = int(query["limit"])
    return page(part(request, STATE).watches(str(query["after"]), limit + 1), "path", limit)


async def get_snapshots(request: web.Request) -> web.Response:
    """List the snapshots of this node."""
    read_query(request, ())
    return json_answer(part(request, STATE).snapshots())


async def get_snapshot_file(request: web.Request) -> web.StreamResponse:
    """Send a snapshot's file; what it says of sessions opens none."""
    read_query(request, ())
    name = str(SNAPSHOT_NAME.read(request.match_info["name"]))
    pieces = part(request, STATE).snapshot_file(name)
    if pieces is None:
        return error_answer(404, f"this node has no snapshot {name}", "GET /v1/snapshots lists them")
    disposition = f'attachment; filename="{name}"'
    headers = {"Content-Type": "application/octet-stream", "Content-Disposition": disposition}
    response = web.StreamResponse(headers=headers)
    loop = asyncio.get_running_loop()
    piece = await loop.run_in_executor(None, next, pieces, b"")
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        while piece:
            await response.write(piece)
            piece = await loop.run_in_executor(None, next, pieces, b"")
    except QuorateError as error:
        # An answer without its end is all that can still be said.
        log.warning("snapshot %s was not sent: %s", name, error)
        if request.transport is not None:
            request.transport.abort()
    return response


async def get_journal(request: web.Request) -> web.Response:
    """Show where the journal and the change log of this node begin and end."""
    read_query(request, ())
    return json_answer(part(request, STATE).journal())


async def get_config(request: web.Request) -> web.Response:
    """Show the settings in force."""
    read_query(request, ())
    return json_answer(part(request, STATE).config())


#: schemas of the pages
SESSIONS: Final = page_of(SESSION)
CONNECTIONS: Final = page_of(CONNECTION)
WATCHES: Final = page_of(WATCHED)
SNAPSHOTS: Final = fields(items=list_of(SNAPSHOT), problem=STRING)
