"""What a node shows of its own state: znodes, sessions, connections, watches, files, settings.

Decides names and shapes only; quorum.admin decides pages. Reads are those of a client that proved nothing, at
this node's applied zxid. Keeps no state.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path, PurePath
from typing import Any

from quorum.changelog.past import Live, PastNode, live_page
from quorum.changelog.recorder import ChangeRecorder
from quorum.core.queries import get_children, get_data
from quorum.node.member import QuorumMember
from quorum.platform.runtime import Disk
from quorum.raft.snapshots.handing import with_another_key
from quorum.server import words
from quorum.server.inspection import UNKNOWN_BYTES, View, bytes_below
from quorum.wire.jute import JuteReader, Stat

log = logging.getLogger("quorate.admin")


class NodeState:
    """The admin port's view of one running node's state."""

    def __init__(self, member: QuorumMember, recorder: ChangeRecorder) -> None:
        """Keep the parts that are read."""
        self._member = member
        self._recorder = recorder

    @property
    def zxid(self) -> int:
        """The last transaction that is applied."""
        return self._member.replica.machine.zxid

    def znode(self, path: str) -> tuple[bytes | None, Stat, Sequence[str]] | int:
        """Return data, Stat and children's names of a node, or ZooKeeper's code of an error."""
        machine = self._member.replica.machine
        found = get_data(machine, path)
        if isinstance(found, int):
            return found
        names = get_children(machine, path)
        assert not isinstance(names, int)
        data, stat = found
        return data, JuteReader(stat, 0, len(stat), "Stat").stat("stat"), names

    def live_page(self, after: str, count: int) -> Live:
        """Return the nodes behind a path, as `past.live_page` does."""
        return live_page(self._member.replica.machine.tree, after, count)

    def past_node(self, path: str, *, with_names: bool) -> PastNode:
        """Return a node from which the changes since a transaction can be undone."""
        return PastNode(self._member.replica.machine.tree, path, with_names=with_names)

    def sessions(self, after: int, limit: int) -> list[Mapping[str, object]]:
        """Return sessions by rising id."""
        sessions = self._member.replica.machine.sessions
        here = {each.session_id for each in self._member.frontend.connections}
        found = nsmallest(limit, (session_id for session_id in sessions if session_id > after))
        return [
            {
                "session_id": session.session_id,
                "timeout_ms": session.timeout_ms,
                "node_id": session.node_id,
                "ephemerals": len(session.ephemerals),
                "connected_here": session.session_id in here,
            }
            for session in map(sessions.__getitem__, found)
        ]

    def connections(self, after: int, limit: int) -> list[Mapping[str, object]]:
        """Return connections by rising id."""
        found = nsmallest(
            limit,
            (each for each in self._member.frontend.connections if each.nonce > after),
            key=lambda each: each.nonce,
        )
        return [
            {
                "connection_id": each.nonce,
                "address": each.stream.address,
                "session_id": each.session_id,
                "timeout_ms": each.timeout_ms,
                "outstanding": each.outstanding,
                "requests_received": each.requests_received,
                "packets_sent": each.stream.packets_sent,
            }
            for each in found
        ]

    def watches(self, after: str, limit: int) -> list[Mapping[str, object]]:
        """Return watched paths by name."""
        watches = self._member.replica.watches
        found = nsmallest(limit, {path for path in watches.paths() if path > after})
        return [
            {"path": path, "session_ids": sorted(each.session_id for each in watches.watchers_of(path))}
            for path in found
        ]

    def snapshots(self) -> Mapping[str, object]:
        """Return the snapshots, oldest first, and what became of the one that was asked for."""
        items = [
            {
                "name": PurePath(file.path).name,
                "log_index": file.log_index,
                "term": file.term,
                "size_bytes": file.size_bytes,
                # Who asks may stand in another folder than the node.
                "path": str(Path(file.path).absolute()),
            }
            for file in self._member.storage.snapshots.files()
        ]
        return {"items": items, "problem": self._member.snapshotter.problem}

    def snapshot_file(self, name: str) -> Iterator[bytes] | None:
        """Return the bytes of a snapshot that is listed, without the key of this cluster's sessions."""
        storage = self._member.storage
        found = next((file for file in storage.snapshots.files() if PurePath(file.path).name == name), None)
        if found is None:
            return None
        key = self._member.replica.machine.session_key
        return _handed_out(storage.disk, found.path, key)

    def journal(self) -> dict[str, object]:
        """Return where the journal and the change log begin and end."""
        member, recorder = self._member, self._recorder
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

    def command_names(self) -> list[str]:
        """Return the names of ZooKeeper's commands that are answered."""
        return sorted(set(words.COMMANDS.values()))

    async def command(self, name: str) -> Mapping[str, object] | None:
        """Answer one of them by any of its names; None if there is none of that name."""
        first = words.COMMANDS.get(name)
        if first is None:
            return None
        member, size = self._member, UNKNOWN_BYTES
        if first in words.MEASURED:
            try:
                size = await asyncio.to_thread(bytes_below, str(member.config.node.data_dir))
            except OSError as error:
                log.warning("could not measure the data directory: %s", error)
        engine, last = member.engine, member.snapshotter.last
        snapshot = (-1, -1) if last is None else (last.zxid, last.stamp_ms)
        address = str(member.config.listen.client)
        view = View(member.frontend, size, address, engine.leads, engine.leader_id, snapshot)
        return words.command(first, view)

    def config(self) -> dict[str, Any]:
        """Return the settings in force, secrets masked."""
        masked: dict[str, Any] = json.loads(self._member.config.masked())
        return masked


def _handed_out(disk: Disk, path: str, key: bytes) -> Iterator[bytes]:
    file = disk.open(path)
    try:
        yield from with_another_key(file, key, secrets.token_bytes(len(key)))
    finally:
        file.close()
