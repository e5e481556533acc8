"""Whose batches take effect, and which expiries: a second, simple form of these rules, beside the product's.

- A batch takes effect only under the origin incarnation that is registered, and as the very next one of it.
- A registration takes effect only with a higher incarnation.
- What one life of a node called its origin incarnation, no other life of it uses, on whatever disk.
- An expiry takes effect only if the session wrote nothing above the index that was judged.

Source: ARCHITECTURE.md, "Life of a write"; docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

import msgpack

from quorum.core.machine import StateMachine
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.requests.payloads import REQUEST_FORMAT

INVARIANT = "forwarding"
EXPIRY = "I11"


class Origins:
    """All origins of one cluster."""

    def __init__(self) -> None:
        self._index = 0
        #: {origin: (its incarnation, number of its last batch)} after entry `_index`
        self._known: dict[int, tuple[int, int]] = {}
        #: {session: (node, nonce) of the connection that it is attached to} behind entry `_index`
        self._attached: dict[int, tuple[int, int]] = {}
        #: {(session, node, nonce of a connection): entry that held its last commands}
        self._wrote: dict[tuple[int, int, int], int] = {}
        #: {(node, its origin incarnation): the life that used it, and the disk}
        self._users: dict[tuple[int, int], int] = {}

    def applied(self, entry: Entry, machine: StateMachine) -> tuple[str, str] | None:
        """Return (invariant, story) of what is wrong behind an entry; judged where a node comes there first.

        Args:
            entry: was applied just now.
            machine: the state behind it.
        """
        if entry.index != self._index + 1:
            return None
        self._index = entry.index
        story = ""
        if entry.kind is EntryKind.REGISTER:
            _, origin, incarnation = msgpack.unpackb(entry.payload)
            if incarnation > self._known.get(origin, (0, 0))[0]:
                self._known[origin] = incarnation, 0
        elif entry.kind is EntryKind.BATCH:
            self._take_batch(entry)
        elif entry.kind is EntryKind.CONTROL:
            story = self._judge_expiries(entry, machine)
        self._attached = {
            session.session_id: (session.node_id, session.nonce) for session in machine.sessions.values()
        }
        if story:
            return EXPIRY, story
        if self._known != machine.origins:
            return (
                INVARIANT,
                f"has {machine.origins} as origins behind entry {entry.index}, not {self._known}",
            )
        return None

    def _take_batch(self, entry: Entry) -> None:
        shape, origin, incarnation, number, runs = msgpack.unpackb(
            entry.payload, raw=False, strict_map_key=False
        )
        if self._known.get(origin) == (incarnation, number - 1):
            self._known[origin] = incarnation, number
            for session_id, nonce, _, _ in () if shape == REQUEST_FORMAT else runs:
                self._wrote[session_id, origin, nonce] = entry.index

    def _judge_expiries(self, entry: Entry, machine: StateMachine) -> str:
        for what, *arguments in msgpack.unpackb(entry.payload)[1]:
            if what != "expire":
                continue
            session_id, _, judged_index = arguments
            attached = self._attached.get(session_id)
            wrote = 0 if attached is None else self._wrote.get((session_id, *attached), 0)
            if wrote > judged_index and session_id not in machine.sessions:
                return (
                    f"expired session {session_id} by entry {entry.index}, judged behind entry "
                    f"{judged_index}; it wrote with entry {wrote}"
                )
        return ""

    def used(self, node_id: int, incarnation: int, life: int) -> int:
        """Return which life used an origin incarnation first.

        Args:
            node_id: the node whose batches have it.
            incarnation: of its batches; it leaves the node.
            life: which one of the node, over all its disks.
        """
        return self._users.setdefault((node_id, incarnation), life)
