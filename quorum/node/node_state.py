"""Endpoints that show a node's own state: sessions, connections, watches, files, settings; the table of all.

A new endpoint is a handler that declares itself. What is shown is the node's, at the moment of the question.
Keeps no state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Iterator
from heapq import nsmallest
from pathlib import Path, PurePath
from typing import Annotated, Final, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin import changelog, events, groups, importing, members, past, typed, znodes
from quorum.admin.app import STATUS_ENDPOINTS, AdminPort, base_app
from quorum.admin.endpoint import AdminEndpoint, Answer, Endpoints, answer, page_of, schema_of
from quorum.admin.gateway import Gateway
from quorum.admin.reading import Says
from quorum.admin.state import MACHINE, PageById, PageByName, page
from quorum.admin.view import error_answer, json_answer
from quorum.changelog.recorder import ChangeRecorder
from quorum.config.admin_port import AdminRole
from quorum.errors import QuorateError
from quorum.node.member import QuorumMember
from quorum.node.node_view import RunningNodeView
from quorum.platform.runtime import Disk
from quorum.platform.tls import MakeContext
from quorum.raft.journal import handing
from quorum.raft.snapshots.handing import with_another_key
from quorum.raft.snapshots.snapshots import SnapshotFile
from quorum.server import words
from quorum.server.auth import own_credentials
from quorum.server.inspection import UNKNOWN_BYTES, View, bytes_below

log = logging.getLogger("quorate.admin")

MEMBER: Final = web.AppKey[QuorumMember]("member")
#: of log entries that are read at once, in the loop, as a follower is sent them
ENTRY_BYTES: Final = 1024 * 1024
_NODE: Final = Endpoints()
_COMMANDS: Final = Endpoints()
SnapshotName: TypeAlias = Annotated[str, Says("of a snapshot, as listed", pattern="[0-9a-z.-]{1,100}")]
CommandName: TypeAlias = Annotated[str, Says("of a command, as listed", pattern="[a-z_]{1,40}")]


TakenSnapshot: TypeAlias = Annotated[Answer, answer(log_index=int)]
SnapshotRow: TypeAlias = Annotated[
    Answer, answer(name=str, log_index=int, term=int, size_bytes=int, path=str)
]
SnapshotItems: TypeAlias = Annotated[Answer, answer(items=list[SnapshotRow], problem=str)]
JournalNow: TypeAlias = Annotated[
    Answer,
    answer(
        first_index=int,
        durable_index=int,
        commit_index=int,
        applied_index=int,
        queued_bytes=int,
        written_bytes=int,
        fsyncs=int,
        write_p50_ms=float,
        write_p99_ms=float,
        changelog_first_zxid=int,
        changelog_last_zxid=int,
        changelog_bytes=int,
    ),
]
SettingsInForce: TypeAlias = Annotated[
    Answer,
    answer(
        node=dict[str, object],
        listen=dict[str, object],
        members=dict[str, object],
        security=dict[str, object],
        raft=dict[str, object],
        limits=dict[str, object],
    ),
]
SessionRow: TypeAlias = Annotated[
    Answer,
    answer(session_id=int, timeout_ms=int, node_id=int, ephemerals=int, connected_here=bool),
]
ConnectionRow: TypeAlias = Annotated[
    Answer,
    answer(
        connection_id=int,
        address=str,
        session_id=int,
        timeout_ms=int,
        outstanding=int,
        requests_received=int,
        packets_sent=int,
    ),
]
WatchRow: TypeAlias = Annotated[Answer, answer(path=str, session_ids=list[int])]
CommandNames: TypeAlias = Annotated[Answer, answer(commands=list[str])]
CommandAnswer: TypeAlias = Annotated[Answer, answer(command=str, error=str | None)]


@_NODE.add("POST", "/v1/snapshots", status=(202,), optional_body=True, example="send no body, or {}")
async def _post_snapshots(request: web.Request) -> TakenSnapshot:
    """Take a snapshot of this node's state."""
    return {"log_index": request.app[MEMBER].snapshotter.request()}


@_NODE.add("GET", "/v1/snapshots")
async def _get_snapshots(request: web.Request) -> SnapshotItems:
    """This node's snapshots."""
    member = request.app[MEMBER]
    rows = [_snapshot(file) for file in member.storage.snapshots.files()]
    return {"items": rows, "problem": member.snapshotter.problem}


def _snapshot(file: SnapshotFile) -> SnapshotRow:
    return {
        "name": PurePath(file.path).name,
        "log_index": file.log_index,
        "term": file.term,
        "size_bytes": file.size_bytes,
        # A reader may stand in another folder than the node.
        "path": str(Path(file.path).absolute()),
    }


@_NODE.add("GET", "/v1/snapshots/{name}", content=("application/octet-stream",), role=AdminRole.ADMIN)
async def _get_snapshot_file(request: web.Request, name: SnapshotName) -> web.StreamResponse:
    """The file of a snapshot, with another session key; for admins."""
    member = request.app[MEMBER]
    files = member.storage.snapshots.files()
    found = next((file for file in files if PurePath(file.path).name == name), None)
    if found is None:
        return error_answer(404, f"this node has no snapshot {name}", "GET /v1/snapshots lists them")
    pieces = _handed_out(member.storage.disk, found.path, member.replica.machine.session_key)
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


@_NODE.add("GET", "/v1/journal")
async def _get_journal(request: web.Request) -> JournalNow:
    """Where journal and history begin."""
    member, recorder = request.app[MEMBER], request.app[changelog.HISTORY]
    status, statistics = member.core.status(), member.writer.statistics
    return {
        "first_index": status.first_index,
        "durable_index": status.durable_index,
        "commit_index": status.commit_index,
        "applied_index": member.replica.machine.applied_index,
        "queued_bytes": member.writer.queued_bytes,
        "written_bytes": statistics.bytes_written,
        "fsyncs": statistics.fsyncs,
        "write_p50_ms": statistics.write_ms(0.5),
        "write_p99_ms": statistics.write_ms(0.99),
        "changelog_first_zxid": recorder.first_zxid,
        "changelog_last_zxid": recorder.last_zxid,
        "changelog_bytes": recorder.size_bytes,
    }


class EntriesQuery(NamedTuple):
    """Which entries of the log are wanted."""

    from_index: Annotated[int, Says("log index of the first one that is wanted", 1)]
    bytes_max: Annotated[
        int, Says("size of the answer, unless its first entry is larger", 1, ENTRY_BYTES)
    ] = ENTRY_BYTES


@_NODE.add("GET", "/v1/journal/entries", content=("application/msgpack",), role=AdminRole.ADMIN)
async def _get_journal_entries(request: web.Request, query: EntriesQuery) -> web.Response:
    """Applied entries of the log, with another session key, as msgpack; for admins."""
    member = request.app[MEMBER]
    journal, machine, first_index = member.storage.journal, member.replica.machine, query.from_index
    if first_index < journal.first_index:
        problem = f"from_index = {first_index}: this node's log begins with entry {journal.first_index}"
        remedy = "begin with a snapshot of it (GET /v1/snapshots)"
        return error_answer(410, problem, remedy, first_index=journal.first_index)
    last_index = min(machine.applied_index, member.core.status().durable_index)
    entries = journal.read(first_index, last_index, query.bytes_max) if first_index <= last_index else []
    key = machine.session_key
    body = handing.pack_entries(handing.with_another_key(entries, key, secrets.token_bytes(len(key))))
    return web.Response(body=body, content_type="application/msgpack")


@_NODE.add("GET", "/v1/config")
async def _get_config(request: web.Request) -> SettingsInForce:
    """The settings, secrets masked."""
    masked: SettingsInForce = json.loads(request.app[MEMBER].config.masked())
    return masked


@_NODE.add("GET", "/v1/sessions")
async def _get_sessions(request: web.Request, query: PageById) -> Annotated[Answer, page_of(SessionRow)]:
    """Sessions of the cluster."""
    member = request.app[MEMBER]
    sessions = member.replica.machine.sessions
    here = {each.session_id for each in member.frontend.connections}
    found = nsmallest(query.limit + 1, (each for each in sessions if each > query.after))
    rows: list[SessionRow] = [
        {
            "session_id": session.session_id,
            "timeout_ms": session.timeout_ms,
            "node_id": session.node_id,
            "ephemerals": len(session.ephemerals),
            "connected_here": session.session_id in here,
        }
        for session in map(sessions.__getitem__, found)
    ]
    return page(rows, "session_id", query.limit)


@_NODE.add("GET", "/v1/connections")
async def _get_connections(
    request: web.Request, query: PageById
) -> Annotated[Answer, page_of(ConnectionRow)]:
    """Client connections of this node."""
    connections = request.app[MEMBER].frontend.connections
    later = (each for each in connections if each.nonce > query.after)
    rows: list[ConnectionRow] = [
        {
            "connection_id": each.nonce,
            "address": each.stream.address,
            "session_id": each.session_id,
            "timeout_ms": each.timeout_ms,
            "outstanding": each.outstanding,
            "requests_received": each.requests_received,
            "packets_sent": each.stream.packets_sent,
        }
        for each in nsmallest(query.limit + 1, later, key=lambda each: each.nonce)
    ]
    return page(rows, "connection_id", query.limit)


@_NODE.add("GET", "/v1/watches")
async def _get_watches(request: web.Request, query: PageByName) -> Annotated[Answer, page_of(WatchRow)]:
    """What clients of this node watch."""
    watches = request.app[MEMBER].replica.watches
    rows: list[WatchRow] = [
        {"path": path, "session_ids": sorted(each.session_id for each in watches.watchers_of(path))}
        for path in nsmallest(query.limit + 1, {path for path in watches.paths() if path > query.after})
    ]
    return page(rows, "path", query.limit)


@_COMMANDS.add("GET", "/commands")
async def _get_commands(_request: web.Request) -> CommandNames:
    """ZooKeeper's commands."""
    return {"commands": sorted(set(words.COMMANDS.values()))}


@_COMMANDS.add("GET", "/commands/{name}")
async def _get_command(
    request: web.Request, name: CommandName
) -> Annotated[web.Response, schema_of(CommandAnswer)]:
    """A command, as ZooKeeper answers it."""
    first = words.COMMANDS.get(name)
    if first is None:
        return error_answer(404, f"Unknown command: {name}", "GET /commands lists them", command=name)
    member, size = request.app[MEMBER], UNKNOWN_BYTES
    if first in words.MEASURED:
        try:
            size = await asyncio.to_thread(bytes_below, str(member.config.node.data_dir))
        except OSError as error:
            log.warning("could not measure the data directory: %s", error)
    engine, last = member.engine, member.snapshotter.last
    snapshot = (-1, -1) if last is None else (last.zxid, last.stamp_ms)
    address = str(member.config.listen.client or member.config.listen.secure_client)
    view = View(member.frontend, size, address, engine.leads, engine.leader_id, snapshot)
    return json_answer(words.command(first, view))


def _handed_out(disk: Disk, path: str, key: bytes) -> Iterator[bytes]:
    file = disk.open(path)
    try:
        yield from with_another_key(file, key, secrets.token_bytes(len(key)))
    finally:
        file.close()


#: every endpoint of a node's admin port
ENDPOINTS: Final[tuple[AdminEndpoint, ...]] = (
    *(*STATUS_ENDPOINTS, *members.ENDPOINTS, *_NODE, *znodes.ENDPOINTS, *typed.ENDPOINTS),
    *(*groups.ENDPOINTS, *changelog.ENDPOINTS, *past.ENDPOINTS, *events.ENDPOINTS, *_COMMANDS),
    *importing.ENDPOINTS,
)


def build_app(
    view: RunningNodeView,
    member: QuorumMember,
    recorder: ChangeRecorder,
    *,
    port: AdminPort,
    tls: MakeContext | None = None,
) -> web.Application:
    """Return the application of a node's admin port.

    Args:
        view, member, recorder: what it shows. port: as of `base_app`.
        tls: reaches the node's own client port where that speaks TLS alone.
    """
    app = base_app(view, ENDPOINTS, port)
    listen = member.config.listen
    gateway = Gateway(
        str(listen.client or listen.secure_client),
        lambda identity: own_credentials(member.frontend.options.own_proof, identity),
        None if listen.client else tls,
    )
    app[members.ASK], app[MEMBER], app[changelog.HISTORY], app[znodes.GATEWAY] = (
        view.ask,
        member,
        recorder,
        gateway,
    )
    app[importing.IMPORT] = view.import_step
    app[MACHINE] = lambda: member.replica.machine
    app[events.LISTENERS] = set()

    async def close(_app: web.Application) -> None:
        await gateway.close()

    app.on_shutdown.append(close)
    return app
