"""The operations of the client: what each one sends, and what its reply means.

Pure: arguments in, a PreparedRequest out, which encodes itself under an xid and decodes its own reply. Knows
no connection and no time. The bytes are those of quorum.wire, the codec that the server uses too.
Source: zookeeper.jute (ZooKeeper 3.9); DIVERGENCES.md, "From ZooKeeper".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from quorum.client.errors import MultiFailedError, NoNodeError, ServerError, server_error
from quorum.client.ranges import int32, int64
from quorum.client.watches import WatchCallback, WatchCause, WatchType
from quorum.wire import replies, requests
from quorum.wire.errors import WireError
from quorum.wire.jute import Stat
from quorum.wire.operations import CREATIONS
from quorum.wire.protocol import OpCode

T = TypeVar("T")

#: Entries [permissions, scheme, identity].
Acl = Sequence[Sequence[int | str]]

ANY_VERSION: Final = -1

_NO_NODE: Final = NoNodeError.code


class CreateMode(IntEnum):
    """Kind of a new node; the numbers are ZooKeeper's."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3


class WatchWish(NamedTuple):
    """The wish to be called once when something changes, and where it is armed, by the code of the reply."""

    callback: WatchCallback
    on_success: WatchCause
    #: What exists arms on a missing node; reads of data and children arm nothing there.
    on_no_node: WatchCause | None = None

    def armed_kind(self, err: int) -> WatchCause | None:
        """Say what the server armed when it replied this code."""
        if err == 0:
            return self.on_success
        return self.on_no_node if err == _NO_NODE else None


@dataclass(frozen=True, slots=True)
class PreparedRequest(Generic[T]):
    """One operation, ready to be sent."""

    #: For watches and errors; "" where the operation has none.
    path: str
    #: For errors: the operation and its path.
    label: str
    #: xid -> whole frame.
    encode: Callable[[int], bytes]
    #: (err, whole reply) -> result; raises the error that the reply means.
    decode: Callable[[int, memoryview], T]
    watch: WatchWish | None = None
    #: What a success disarms on the path.
    removes: WatchType | None = None


class OperationResult(NamedTuple):
    """What one operation of a successful multi did."""

    #: Path of a created node, with its sequence suffix; None for other operations.
    path: str | None
    #: Stat after create2 and set; None for other operations.
    stat: Stat | None

    @property
    def written_stat(self) -> Stat:
        """Return the Stat of a create2 or set.

        Raises:
            TypeError: the operation was another one.
        """
        if self.stat is None:
            raise TypeError("only create2 and set have a Stat in the result of a multi")
        return self.stat


class Transaction:
    """The operations of one multi, in order: all of them take effect, or none.

    Every method appends one operation and returns the transaction; a number that no request can carry raises
    InvalidArgumentError and appends nothing.
    """

    def __init__(self) -> None:
        """Start empty; an empty multi is legal."""
        self._commands: list[requests.Command] = []

    def __len__(self) -> int:
        """Count the operations."""
        return len(self._commands)

    @property
    def commands(self) -> Sequence[requests.Command]:
        """The operations as commands of the wire codec."""
        return self._commands

    def create(self, path: str, data: bytes | None = b"", mode: CreateMode = CreateMode.PERSISTENT) -> Self:
        """Create a node; its result has the path."""
        self._commands.append(_creation("create", OpCode.CREATE, path, data, mode))
        return self

    def create2(self, path: str, data: bytes | None = b"", mode: CreateMode = CreateMode.PERSISTENT) -> Self:
        """Create a node; its result has the path and the Stat."""
        self._commands.append(_creation("create2", OpCode.CREATE2, path, data, mode))
        return self

    def create_container(self, path: str, data: bytes | None = b"") -> Self:
        """Create a node that goes when its last child is gone; its result has the path and the Stat."""
        self._commands.append([int(OpCode.CREATE_CONTAINER), path, data, None, 4])
        return self

    def create_ttl(self, path: str, data: bytes | None, ttl_ms: int) -> Self:
        """Create a node that goes when its data is older than ttl_ms; its result has path and Stat."""
        ttl_ms = int64("create_ttl", path, "ttl_ms", ttl_ms)
        self._commands.append([int(OpCode.CREATE_TTL), path, data, None, 5, ttl_ms])
        return self

    def delete(self, path: str, version: int = ANY_VERSION) -> Self:
        """Delete a node without children, if it has the version."""
        self._commands.append([int(OpCode.DELETE), path, int32("delete", path, "version", version)])
        return self

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Self:
        """Replace the data of a node, if it has the version; its result has the Stat."""
        self._commands.append([int(OpCode.SET_DATA), path, data, int32("set", path, "version", version)])
        return self

    def check(self, path: str, version: int = ANY_VERSION) -> Self:
        """Let the multi fail unless the node exists and has the version."""
        self._commands.append([int(OpCode.CHECK), path, int32("check", path, "version", version)])
        return self

    def extend(self, other: Transaction) -> Self:
        """Append all operations of another transaction."""
        self._commands.extend(other.commands)
        return self


def create(path: str, data: bytes | None, mode: CreateMode, acl: Acl | None = None) -> PreparedRequest[str]:
    """Create a node; returns its path, with the sequence suffix of a sequential one."""
    command = with_acl(_creation("create", OpCode.CREATE, path, data, mode), acl)
    return written("create", path, command, replies.decode_path)


def create2(
    path: str, data: bytes | None, mode: CreateMode, acl: Acl | None = None
) -> PreparedRequest[tuple[str, Stat]]:
    """Create a node; returns its path and Stat."""
    command = with_acl(_creation("create2", OpCode.CREATE2, path, data, mode), acl)
    return written("create2", path, command, replies.decode_path_stat)


def with_acl(command: requests.Command, acl: Acl | None) -> requests.Command:
    """Return a command with the access list of what it creates, if it creates; None: everybody."""
    if acl is None or command[0] not in CREATIONS:
        return command
    return [*command[:3], acl, *command[4:]]


def _creation(
    operation: str, op: OpCode, path: str, data: bytes | None, mode: CreateMode
) -> requests.Command:
    return [int(op), path, data, None, int32(operation, path, "mode", int(mode))]


def delete(path: str, version: int) -> PreparedRequest[None]:
    """Delete a node."""
    command = [int(OpCode.DELETE), path, int32("delete", path, "version", version)]
    return written("delete", path, command, nothing)


def set_data(path: str, data: bytes | None, version: int) -> PreparedRequest[Stat]:
    """Replace the data of a node."""
    command = [int(OpCode.SET_DATA), path, data, int32("set", path, "version", version)]
    return written("set", path, command, replies.decode_stat)


def sync(path: str) -> PreparedRequest[str]:
    """Wait until this server has everything that was committed before; returns the path."""
    return written("sync", path, [int(OpCode.SYNC), path], replies.decode_path)


def close_session() -> PreparedRequest[None]:
    """End the session."""
    return written("close", "", [int(OpCode.CLOSE_SESSION)], nothing)


def exists(path: str, watch: WatchCallback | None) -> PreparedRequest[Stat | None]:
    """Read the Stat of a node, None if there is no such node."""

    def decode(err: int, frame: memoryview) -> Stat | None:
        if err == _NO_NODE:
            return None
        if err:
            raise server_error(err, path)
        return replies.decode_stat(frame)

    return PreparedRequest(
        path,
        f"exists {path}",
        lambda xid: requests.encode_read(xid, OpCode.EXISTS, path, watch is not None),
        decode,
        # An event "created" from a later SetWatches must not answer a watch on a node that was there all the
        # time.
        None if watch is None else WatchWish(watch, WatchCause.DATA, WatchCause.EXIST),
    )


def get(path: str, watch: WatchCallback | None) -> PreparedRequest[tuple[bytes | None, Stat]]:
    """Read the data and Stat of a node."""
    return _read(
        "get", OpCode.GET_DATA, path=path, watch=watch, kind=WatchCause.DATA, decode_body=replies.decode_data
    )


def get_children(path: str, watch: WatchCallback | None) -> PreparedRequest[list[str]]:
    """Read the names of a node's children."""
    return _read(
        "get_children",
        OpCode.GET_CHILDREN,
        path=path,
        watch=watch,
        kind=WatchCause.CHILD,
        decode_body=replies.decode_children,
    )


def get_children2(path: str, watch: WatchCallback | None) -> PreparedRequest[tuple[list[str], Stat]]:
    """Read the names of a node's children, and its Stat."""
    return _read(
        "get_children",
        OpCode.GET_CHILDREN2,
        path=path,
        watch=watch,
        kind=WatchCause.CHILD,
        decode_body=replies.decode_children_stat,
    )


def multi(transaction: Transaction, acl: Acl | None = None) -> PreparedRequest[list[OperationResult]]:
    """Run a transaction; what it creates has an access list."""
    commands = [with_acl(command, acl) for command in transaction.commands]

    def decode(frame: memoryview) -> list[OperationResult]:
        results = replies.decode_multi(frame)
        for index, result in enumerate(results):
            if result.err:
                # Operations before the failing one carry 0, those after it RUNTIMEINCONSISTENCY.
                raise MultiFailedError(index, _multi_cause(commands, index, result.err))
        return [OperationResult(result.path, result.stat) for result in results]

    return PreparedRequest(
        "",
        f"multi of {len(commands)} operations",
        lambda xid: requests.encode_command(xid, [int(OpCode.MULTI), commands]),
        decoder("", decode),
    )


def _multi_cause(commands: Sequence[requests.Command], index: int, err: int) -> ServerError:
    if index >= len(commands):
        raise WireError("multi reply", index, f"the multi has {len(commands)} operations")
    op, path = commands[index][:2]
    return server_error(err, path, creating=op in CREATIONS)


def written(
    operation: str, path: str, command: list[Any], decode_body: Callable[[memoryview], T]
) -> PreparedRequest[T]:
    """Make the request of a write: its command, and what decodes the body of its reply."""
    return PreparedRequest(
        path,
        f"{operation} {path}",
        lambda xid: requests.encode_command(xid, command),
        decoder(path, decode_body, creating=command[0] in CREATIONS),
    )


def _read(
    operation: str,
    op: OpCode,
    *,
    path: str,
    watch: WatchCallback | None,
    kind: WatchCause,
    decode_body: Callable[[memoryview], T],
) -> PreparedRequest[T]:
    return PreparedRequest(
        path,
        f"{operation} {path}",
        lambda xid: requests.encode_read(xid, op, path, watch is not None),
        decoder(path, decode_body),
        None if watch is None else WatchWish(watch, kind),
    )


def decoder(
    path: str, decode_body: Callable[[memoryview], T], *, creating: bool = False
) -> Callable[[int, memoryview], T]:
    """Decode the body of a reply, or raise the error that its header has."""

    def decode(err: int, frame: memoryview) -> T:
        if err:
            raise server_error(err, path, creating=creating)
        return decode_body(frame)

    return decode


def nothing(_frame: memoryview) -> None:
    """Decode the body of a reply that has none."""
