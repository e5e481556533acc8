"""The rarer operations of the client: access lists, lifetimes, and what only looks.

Pure, as requests.py: arguments in, a PreparedRequest out. An access list is a list of AccessEntry; the
schemes are the servers' affair. Source: zookeeper.jute (ZooKeeper 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quorum.client.errors import ServerError, server_error
from quorum.client.ranges import int32, int64
from quorum.client.requests import Acl, PreparedRequest, WatchWish, decoder, nothing, written
from quorum.client.watches import WatchCallback, WatchCause, WatchType
from quorum.wire import lookups, replies
from quorum.wire.errors import WireError
from quorum.wire.jute import Stat
from quorum.wire.protocol import OpCode

#: what read_all gives for one path: (data, Stat), or why it could not be read
ReadOutcome = tuple[bytes | None, Stat] | ServerError


class AccessEntry(NamedTuple):
    """Which identity may do what."""

    #: sum of 1 read, 2 write, 4 create, 8 delete, 16 administer
    permissions: int
    #: world, auth, digest or ip
    scheme: str
    #: in the form of the scheme, as "anyone" of world
    identity: str


def set_acl(path: str, acl: Sequence[AccessEntry], aversion: int) -> PreparedRequest[Stat]:
    """Replace the access list of a node."""
    entries = acl_entries("set_acl", path, acl)
    command = [int(OpCode.SET_ACL), path, entries, int32("set_acl", path, "aversion", aversion)]
    return written("set_acl", path, command, replies.decode_stat)


def acl_entries(operation: str, path: str, acl: Sequence[AccessEntry]) -> list[list[int | str]]:
    """Return an access list as requests carry it.

    Raises:
        InvalidArgumentError: permissions that no request can carry.
    """
    return [
        [int32(operation, path, "permissions", permissions), scheme, identity]
        for permissions, scheme, identity in acl
    ]


def create_container(
    path: str, data: bytes | None, acl: Acl | None = None
) -> PreparedRequest[tuple[str, Stat]]:
    """Create a node that goes when its last child is gone."""
    command = [int(OpCode.CREATE_CONTAINER), path, data, acl, 4]
    return written("create_container", path, command, replies.decode_path_stat)


def create_ttl(
    path: str, data: bytes | None, ttl_ms: int, *, sequential: bool, acl: Acl | None = None
) -> PreparedRequest[tuple[str, Stat]]:
    """Create a node that goes when its data is older than a time."""
    flags = 6 if sequential else 5
    command = [int(OpCode.CREATE_TTL), path, data, acl, flags, int64("create_ttl", path, "ttl_ms", ttl_ms)]
    return written("create_ttl", path, command, replies.decode_path_stat)


def get_acl(path: str) -> PreparedRequest[tuple[list[AccessEntry], Stat]]:
    """Read the access list and Stat of a node."""

    def decode(frame: memoryview) -> tuple[list[AccessEntry], Stat]:
        acl, stat = replies.decode_acl(frame)
        return [AccessEntry(*entry) for entry in acl], stat

    return PreparedRequest(
        path,
        f"get_acl {path}",
        lambda xid: lookups.encode_looked_at(xid, OpCode.GET_ACL, path),
        decoder(path, decode),
    )


def count_descendants(path: str) -> PreparedRequest[int]:
    """Count the nodes below a node."""

    op = OpCode.GET_ALL_CHILDREN_NUMBER
    return PreparedRequest(
        path,
        f"count_descendants {path}",
        lambda xid: lookups.encode_looked_at(xid, op, path),
        decoder(path, replies.decode_number),
    )


def get_ephemerals(prefix: str) -> PreparedRequest[list[str]]:
    """Read the paths of this session's ephemerals."""

    op = OpCode.GET_EPHEMERALS
    return PreparedRequest(
        "",
        f"get_ephemerals {prefix}",
        lambda xid: lookups.encode_looked_at(xid, op, prefix),
        decoder(prefix, replies.decode_children),
    )


def who_am_i() -> PreparedRequest[list[tuple[str, str]]]:
    """Read what the server takes this client for."""

    return PreparedRequest("", "who_am_i", lookups.encode_who_am_i, decoder("", replies.decode_identities))


def add_watch(path: str, callback: WatchCallback, *, recursive: bool) -> PreparedRequest[None]:
    """Watch a node, or all from it down, until the watch is removed."""
    mode = lookups.ADD_RECURSIVE if recursive else lookups.ADD_PERSISTENT
    return PreparedRequest(
        path,
        f"add_watch {path}",
        lambda xid: lookups.encode_watch_request(xid, OpCode.ADD_WATCH, path, mode),
        decoder(path, nothing),
        WatchWish(callback, WatchCause.RECURSIVE if recursive else WatchCause.PERSISTENT),
    )


def remove_watches(path: str, watch_type: WatchType) -> PreparedRequest[None]:
    """Remove this client's watches of a path."""
    return PreparedRequest(
        path,
        f"remove_watches {path}",
        lambda xid: lookups.encode_watch_request(xid, OpCode.REMOVE_WATCHES, path, watch_type),
        decoder(path, nothing),
        removes=watch_type,
    )


def read_all(paths: Sequence[str]) -> PreparedRequest[list[ReadOutcome]]:
    """Read the data of several nodes in one request; each read has its own outcome."""
    # The caller may change its list before the reply is there.
    wanted = tuple(paths)
    reads = [(int(OpCode.GET_DATA), path) for path in wanted]

    def decode(frame: memoryview) -> list[ReadOutcome]:
        found = replies.decode_multi_read(frame)
        if len(found) != len(wanted):
            raise WireError("multi_read reply", len(found), f"{len(wanted)} nodes were read")
        return [
            server_error(each, path) if isinstance(each, int) else each
            for path, each in zip(wanted, found, strict=True)
        ]

    return PreparedRequest(
        "",
        f"read_all of {len(reads)} nodes",
        lambda xid: lookups.encode_multi_read(xid, reads),
        decoder("", decode),
    )
