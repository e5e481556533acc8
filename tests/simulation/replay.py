"""The state after an entry, from the log alone: what every snapshot must equal (I7).

Keeps one state machine that only goes forward, and what it looked like where it was asked; an index behind it
is replayed from the beginning, but only now and then, because that costs the whole prefix.
Source: docs/internals/simulation.md, "What is checked"; quorum.node.replica for what the payloads of entries
hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from quorum.core.machine import StateMachine
from quorum.core.quotas import QuotaRule
from quorum.node.replica import QUOTA_RULES
from quorum.node.storage import load_machine
from quorum.platform.runtime import Buffer
from quorum.raft.core.configuration import parse_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.datadir.founding import parse_founding
from quorum.raft.requests.payloads import IMPORT_FORMAT
from quorum.raft.snapshots.format import SnapshotReader
from tests.unit.core.driver import dump

OVERLAY_BYTES_MAX = 1 << 20
#: of the questions about an index that was passed already, one in so many is answered
BACKWARD_EVERY = 3


class Replay:
    """States along one log."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        """Begin with nothing applied.

        Args:
            entries: {index: committed entry}; grows.
        """
        self._entries = entries
        self._machine = StateMachine(OVERLAY_BYTES_MAX)
        self._known: dict[int, dict[str, Any]] = {}
        self._until_backward = BACKWARD_EVERY

    def at(self, index: int) -> dict[str, Any] | None:
        """Return the dump of the state after an entry; None if it is not answered this time."""
        known = self._known.get(index)
        if known is not None:
            return known
        machine = self._machine
        if index < machine.applied_index:
            self._until_backward -= 1
            if self._until_backward:
                return None
            self._until_backward = BACKWARD_EVERY
            machine = StateMachine(OVERLAY_BYTES_MAX)
        for number in range(machine.applied_index + 1, index + 1):
            entry = self._entries.get(number)
            if entry is None:
                return None
            apply(machine, entry)
        found = self._known[index] = dump(machine)
        return found


def apply(machine: StateMachine, entry: Entry) -> None:
    """Apply one entry, as quorum.node.replica does."""
    index, term, kind, stamp_ms, payload = entry
    match kind:
        case EntryKind.BATCH:
            shape, *batch = msgpack.unpackb(payload, raw=False, strict_map_key=False)
            origin, incarnation, number, runs = batch
            rule = QUOTA_RULES.get(shape, QuotaRule.IGNORED)
            imports = shape == IMPORT_FORMAT
            head = (index, term, stamp_ms, origin, incarnation, number)
            for _ in machine.apply_batch(*head, runs, rule, imports=imports):
                pass
        case EntryKind.NOOP:
            machine.apply_noop(index, term, stamp_ms)
        case EntryKind.CONTROL:
            machine.apply_control(index, term, stamp_ms, msgpack.unpackb(payload)[1])
        case EntryKind.REGISTER:
            _, node_id, incarnation = msgpack.unpackb(payload)
            machine.apply_register(index, term, stamp_ms, node_id, incarnation)
        case EntryKind.FOUND:
            founding = parse_founding(payload)
            cluster_id = founding.configuration.cluster_id
            machine.apply_found(index, term, stamp_ms, cluster_id, founding.session_key, payload)
        case _:
            machine.apply_configuration(index, term, stamp_ms, payload)


class _Bytes:
    """A file that is read only, outside of any disk and its faults."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self._content = content

    def size(self) -> int:
        """Return its size."""
        return len(self._content)

    def pread(self, size: int, offset: int) -> bytes:
        """Read."""
        return self._content[offset : offset + size]

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:  # noqa: ARG002 - File's names
        """Refuse."""
        raise AssertionError(f"{self.path} is only read")

    def fdatasync(self) -> None:
        """Do nothing."""

    def truncate(self, size: int) -> None:  # noqa: ARG002 - File's name
        """Refuse."""
        raise AssertionError(f"{self.path} is only read")

    def close(self) -> None:
        """Do nothing."""


def load_from(content: bytes, path: str) -> StateMachine:
    """Return the state in the bytes of a snapshot file.

    Raises:
        SnapshotDamagedError, SnapshotFormatError: it holds none.
        ValueError: its header holds other members than its state.
    """
    machine, mark = load_machine(SnapshotReader(_Bytes(path, content)), OVERLAY_BYTES_MAX)
    if mark.configuration != parse_configuration(machine.configuration):
        raise ValueError(f"the header holds {mark.configuration}, the state {machine.configuration!r}")
    return machine
