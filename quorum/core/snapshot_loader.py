"""The loader of snapshots: chunks in, a state machine out, equal to the one that was walked.

It takes nothing for granted: every shape, type, number and reference is checked, and what does not fit is a
SnapshotFormatError that names it. Whether the bytes are the ones that were written is the shell's business
(checksums). snapshot_walk.py has the form of the chunks. No state but the machine that is being built.
Source: docs/internals/consensus.md, D14, "Snapshots".
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from quorum.core.acl import CONTAINER, UNLIMITED, AclEntry
from quorum.core.codes import INT32_MAX, INT64_MAX, TTL_MAX_MS, UINT64_MAX
from quorum.core.machine import DIGEST_BYTES, StateMachine
from quorum.core.paths import is_valid_segment
from quorum.core.records import ACL_MASK, HEADER_BYTES, STAT_BYTES, acl_field_of, owner_of, pzxid_of
from quorum.core.sessions import Session
from quorum.core.snapshot_walk import EXTENDED_FORMAT
from quorum.core.tree import Directory
from quorum.core.usage import index_quotas

#: the format before znodes had lifetimes; still read
_FORMAT_WITHOUT_LIFETIMES: Final = 1
#: owner, data length, ACL field
_CHECKED: Final = Struct(">44xqi12xI")
#: the numbers of a header, after its tag and format
_COUNTERS: Final = (
    "applied index",
    "applied term",
    "last stamp",
    "zxid",
    "session counter",
    "node count",
    "data bytes",
    "next ACL number",
)
#: with the tag, the format and the eight values after the numbers
_HEADER_LENGTH: Final = len(_COUNTERS) + 10


class SnapshotFormatError(Exception):
    """The chunks are not those of a whole snapshot; take another snapshot, or the log."""


class SnapshotLayoutError(SnapshotFormatError):
    """The chunks are of a form that this version does not know; take the version that wrote them."""


def _number(what: str, value: object, maximum: int = INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= maximum:
        raise SnapshotFormatError(f"{what} is {value!r}, not a number from 0 to {maximum}")
    return value


def _string(what: str, value: object) -> str:
    if type(value) is not str:
        raise SnapshotFormatError(f"{what} is {value!r}, not a string")
    return value


def _bytes(what: str, value: object) -> bytes:
    if type(value) is not bytes:
        raise SnapshotFormatError(f"{what} is {value!r}, not bytes")
    return value


def _list(what: str, value: object, length: int | None = None) -> list[object]:
    if type(value) is not list or (length is not None and len(value) != length):
        wanted = "a list" if length is None else f"a list of {length}"
        raise SnapshotFormatError(f"{what} has {str(value)[:80]}, not {wanted}")
    return value


def _digest(what: str, value: object) -> bytes:
    digest = _bytes(what, value)
    if len(digest) != DIGEST_BYTES:
        raise SnapshotFormatError(f"{what} has {len(digest)} bytes, not {DIGEST_BYTES}")
    return digest


class SnapshotLoader:
    """Builds a machine from the chunks of one walk, in their order.

    Args:
        snapshot_overlay_bytes_max: for the machine that is built.
    """

    def __init__(self, snapshot_overlay_bytes_max: int = 64 * 1024 * 1024) -> None:
        self._machine = StateMachine(snapshot_overlay_bytes_max)
        self._has_header = False
        self._has_end = False
        #: what the header and the end say that must come
        self._node_count = 0
        self._data_bytes = 0
        #: {path: directory} of all directories so far
        self._directories: dict[str, Directory] = {}
        #: (path, record, child creations or None) of "changed" chunks, placed at the end: parents may come
        #: late
        self._changed: list[tuple[str, bytes, int | None]] = []

    def feed(self, chunk: object) -> None:
        """Take the next chunk."""
        values = _list("chunk", chunk)
        tag = values[0] if values else None
        if self._has_end or self._has_header == (tag == "header"):
            raise SnapshotFormatError(f"a chunk {tag!r} is out of order")
        match tag:
            case "header":
                self._take_header(values)
            case "nodes":
                for group in values[1:]:
                    path, record, creates, leaves = _list("group", group, 4)
                    self._take_group(_string("path", path), record, creates, _list("leaves", leaves))
            case "changed":
                for row in values[1:]:
                    path, record, creates = _list("changed node", row, 3)
                    number = None if creates is None else _number("child creations", creates)
                    self._changed.append((_string("path", path), _bytes("record", record), number))
            case "end":
                if values[1:] != [self._node_count]:
                    raise SnapshotFormatError(
                        f"the end counts {values[1:]} nodes, the header {self._node_count}"
                    )
                self._has_end = True
            case _:
                raise SnapshotFormatError(f"unknown chunk {tag!r}")

    def finish(self) -> StateMachine:
        """Check that everything came, and that it fits together.

        Returns:
            The machine: digests, counters, sessions and origins as they were.
        """
        if not self._has_end:
            raise SnapshotFormatError("the end of the snapshot is missing")
        # by path, so that parents precede their children
        for path, record, creates in sorted(self._changed, key=lambda changed: changed[0]):
            self._place_changed(path, record, creates)
        machine = self._machine
        for path, directory in self._directories.items():
            if directory.stat() != directory.record[:STAT_BYTES]:
                raise SnapshotFormatError(f"{path!r} has {len(directory.children)} children and another Stat")
        tree = machine.tree
        if "/" not in self._directories:
            raise SnapshotFormatError("the root is missing")
        if (tree.node_count, tree.data_bytes) != (self._node_count, self._data_bytes):
            raise SnapshotFormatError(
                f"{tree.node_count} nodes of {tree.data_bytes} bytes came,"
                f" the header counts {self._node_count} of {self._data_bytes}"
            )
        for number, _, count in tree.acls.stored():
            if not count:
                raise SnapshotFormatError(f"no node has ACL {number}")
        index_quotas(tree)
        return machine

    def _take_header(self, values: list[object]) -> None:
        machine = self._machine
        layout = values[1] if len(values) > 1 else None
        if type(layout) is not int or not _FORMAT_WITHOUT_LIFETIMES <= layout <= EXTENDED_FORMAT:
            problem = f"the format of the state is {layout!r}"
            raise SnapshotLayoutError(
                f"{problem}, this version reads {_FORMAT_WITHOUT_LIFETIMES} to {EXTENDED_FORMAT}"
            )
        is_extended = layout == EXTENDED_FORMAT
        (_, _, *counters), texts = _list("header", values, _HEADER_LENGTH + 3 * is_extended)[:10], values[10:]
        if is_extended:
            machine.feature_level = _number("feature level", texts[8], INT32_MAX)
            machine.transaction.import_source = _string("source of an import", texts[9])
            machine.transaction.import_floor = _number("floor of an import", texts[10])
        numbers = [_number(what, value) for what, value in zip(_COUNTERS, counters, strict=True)]
        machine.applied_index, machine.applied_term, machine.last_stamp_ms = numbers[:3]
        machine.transaction.zxid, machine.session_counter = numbers[3:5]
        self._node_count, self._data_bytes = numbers[5:7]
        machine.cluster_id = _string("cluster id", texts[0])
        machine.session_key = _bytes("session key", texts[1])
        machine.configuration = _bytes("configuration", texts[2])
        machine.state_digest = _digest("state digest", texts[3])
        machine.apply_digest = _digest("apply digest", texts[4])
        for row in _list("ACLs", texts[5]):
            unlimited = layout == _FORMAT_WITHOUT_LIFETIMES
            self._take_acl(*([*_list("ACL", row, 2), UNLIMITED] if unlimited else _list("ACL", row, 3)))
        machine.tree.acls.next_number = _number("next ACL number", numbers[7], ACL_MASK)
        for row in _list("origins", texts[6]):
            node_id, incarnation, number = _list("origin", row, 3)
            machine.origins[_number("node id", node_id, INT32_MAX)] = (
                _number("incarnation", incarnation, UINT64_MAX),
                _number("batch number", number),
            )
        for row in _list("sessions", texts[7]):
            self._take_session(*_list("session", row, 5))
        self._has_header = True

    def _take_acl(self, number: object, content: object, lifetime: object) -> None:
        acl: list[AclEntry] = []
        for entry in _list("ACL", content):
            perms, scheme, name = _list("ACL entry", entry, 3)
            if type(perms) is not int:
                raise SnapshotFormatError(f"permissions are {perms!r}, not a number")
            acl.append((perms, _string("scheme", scheme), _string("id", name)))
        try:
            self._machine.tree.acls.add(
                _number("ACL number", number, ACL_MASK),
                tuple(acl),
                CONTAINER if lifetime == CONTAINER else _number("lifetime", lifetime, TTL_MAX_MS),
            )
        except ValueError as error:
            raise SnapshotFormatError(str(error)) from error

    def _take_session(
        self, session_id: object, timeout: object, node_id: object, nonce: object, last: object
    ) -> None:
        machine = self._machine
        number = _number("session id", session_id, machine.session_counter)
        if not number or number in machine.sessions:
            raise SnapshotFormatError(f"session id {number} is 0 or repeated")
        machine.sessions[number] = Session(
            number,
            _number("session timeout", timeout, INT32_MAX),
            _number("node id", node_id, INT32_MAX),
            _number("nonce", nonce, UINT64_MAX),
            _number("last index", last, machine.applied_index),
        )

    def _take_group(self, path: str, record: object, creates: object, leaves: list[object]) -> None:
        """Take a directory (or, without a record, more of one) and its leaves."""
        if record is None:
            directory = self._directories.get(path)
            if directory is None:
                raise SnapshotFormatError(f"{path!r} is continued before it began")
        else:
            directory = self._place_directory(
                path, _bytes("record", record), _number("child creations", creates)
            )
        if len(leaves) % 2:
            raise SnapshotFormatError(f"the leaves of {path!r} are not pairs")
        prefix = path if path != "/" else ""
        names = iter(leaves)
        for name, leaf in zip(names, names, strict=True):
            self._place_leaf(directory, f"{prefix}/{name}", name, leaf)

    def _place_directory(self, path: str, record: bytes, creates: int) -> Directory:
        """Put a directory below its parent, which must be there; the root is always there."""
        self._check_record(path, record)
        tree = self._machine.tree
        if path in self._directories:
            raise SnapshotFormatError(f"{path!r} comes twice")
        if path == "/":
            directory = tree.root
            directory.record, directory.creates, directory.pzxid = record, creates, pzxid_of(record)
            tree.data_bytes += len(record) - HEADER_BYTES
            tree.acls.retain(acl_field_of(record) & ACL_MASK)
        else:
            parent, name = self._parent_of(path)
            directory = Directory(record, creates, pzxid_of(record))
            tree.adopt(parent, name, path, directory)
            tree.acls.retain(acl_field_of(record) & ACL_MASK)
        if owner_of(record):
            raise SnapshotFormatError(f"the ephemeral {path!r} has children")
        self._directories[path] = directory
        return directory

    def _place_leaf(self, parent: Directory, path: str, name: object, record: object) -> None:
        if type(name) is not str or type(record) is not bytes or name in parent.children:
            raise SnapshotFormatError(f"{path!r} comes twice, or is {type(record).__name__}, not a record")
        if not is_valid_segment(name) or "/" in name:
            raise SnapshotFormatError(f"{name!r} is no name of a node")
        number, owner = self._check_record(path, record)
        tree = self._machine.tree
        tree.adopt(parent, name, path, record)
        if number:
            tree.acls.retain(number)
        if owner:
            session = self._machine.sessions.get(owner)
            if session is None:
                raise SnapshotFormatError(f"session {owner}, the owner of {path!r}, is missing")
            session.ephemerals[path] = None

    def _place_changed(self, path: str, record: bytes, creates: int | None) -> None:
        """Place a node that changed during the walk, or find it as it is already there."""
        if creates is None:
            parent, name = self._parent_of(path)
            if parent.children.get(name) != record:
                self._place_leaf(parent, path, name, record)
            return
        directory = self._directories.get(path)
        if directory is None:
            self._place_directory(path, record, creates)
        elif (directory.record, directory.creates) != (record, creates):
            raise SnapshotFormatError(f"{path!r} comes twice, and differs")

    def _parent_of(self, path: str) -> tuple[Directory, str]:
        parent_path, slash, name = path.rpartition("/")
        parent = self._directories.get(parent_path or "/")
        if not slash or parent is None or not is_valid_segment(name):
            raise SnapshotFormatError(f"{path!r} has no parent, or is no path")
        return parent, name

    def _check_record(self, path: str, record: bytes) -> tuple[int, int]:
        """Check what a record says of itself; returns (ACL number, owner)."""
        if len(record) < HEADER_BYTES:
            raise SnapshotFormatError(f"the record of {path!r} has only {len(record)} bytes")
        owner, data_length, field = _CHECKED.unpack_from(record)
        number = field & ACL_MASK
        if data_length != len(record) - HEADER_BYTES or (field != number and data_length):
            raise SnapshotFormatError(
                f"the record of {path!r} says {data_length} bytes of data, and has others"
            )
        if number and number not in self._machine.tree.acls:
            raise SnapshotFormatError(f"ACL {number} of {path!r} is missing")
        return number, owner
