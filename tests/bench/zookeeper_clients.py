"""Clients that speak ZooKeeper's protocol: the same for Quorate and for ZooKeeper.

Blocking connections of tests/support/wire_load.py. A session is left behind by closing its socket without a
word, after which only its timeout ends it. Knows nothing of what is measured.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence

from tests.support.wire_load import (
    CLOSE,
    CREATE,
    EXISTS,
    GET_DATA,
    NODE_EXISTS,
    RECEIVE_BYTES,
    SET_DATA,
    Connection,
    LoadError,
    LoadInterruptedError,
    create_body,
    frame,
    node_path,
    read_body,
    set_body,
    value_of,
)

#: longer than any server of the benchmark leaves a write without an outcome
REPLY_TIMEOUT_S = 60.0
FILL_WINDOW = 256
#: sessions that send nothing while a case runs
LONG_SESSION_MS = 40_000
NO_NODE = -101
_EPHEMERAL = 1
_DELETED_EVENT = 2
_EVENT_XID = -1
_CLOSE_XID = 0x7FFFFFFF


class ReconnectingWriter:
    """Sets one path, again and again; resumes its session on the same server after a connection broke."""

    def __init__(self, host: str, path: str) -> None:
        """Connect and make the path."""
        self._host, self._path = host, path
        self._session: tuple[int, bytes] | None = None
        self._connection: Connection | None = None
        self._connected().ensure(path)

    def write(self, number: int) -> None:
        """Write once and wait for the acknowledgement.

        Raises:
            OSError: the connection broke; the next write opens another one.
            LoadError: the server refused, or the session is gone.
        """
        connection = self._connected()
        try:
            error, _zxid, _body = connection.call(SET_DATA, set_body(self._path, b"%0100d" % number))
        except (OSError, LoadError):
            self._connection = None
            connection.socket.close()
            raise
        if error:
            raise LoadError(f"{self._path}: write {number} got error {error}")

    def close(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> Connection:
        if self._connection is None:
            try:
                self._connection = Connection(self._host, timeout_s=REPLY_TIMEOUT_S, resume=self._session)
            except LoadError:
                self._session = None  # it has ended; the next attempt asks for a new one
                raise
            self._session = self._connection.session_id, self._connection.password
        return self._connection


class DataWatcher:
    """A session with one watch on the value of one node."""

    def __init__(self, connection: Connection, path: str) -> None:
        """Take over a connection."""
        self.connection = connection
        self.socket: socket.socket = connection.socket
        self._path = path
        self._data = b""

    def arm(self) -> None:
        """Read the node and leave a watch."""
        error, _zxid, _body = self.connection.call(GET_DATA, read_body(self._path, watch=True))
        if error:
            raise LoadError(f"{self._path}: a read with a watch got error {error}")

    def take(self) -> bool:
        """Take in what has arrived; says whether the event was among it."""
        chunk = self.socket.recv(RECEIVE_BYTES)
        if not chunk:
            raise ConnectionResetError("the server closed a watcher's connection")
        self._data += chunk
        if len(self._data) < 8:
            return False
        length, xid = struct.unpack_from(">ii", self._data)
        if xid != _EVENT_XID:
            raise LoadError(f"a watcher got a reply to {xid} instead of an event")
        if len(self._data) < 4 + length:
            return False
        self._data = self._data[4 + length :]
        return True


class ZooKeeperClients:
    """Opens the connections."""

    program = "tests.support.wire_load"
    states_per_request = 1000
    linearizable_reads = False

    def fill(self, host: str, folder: str, count: int, value_bytes: int = 100) -> float:
        """Make a folder, its fence and its nodes; what is there already stays. Returns seconds."""
        with Connection(host, timeout_s=REPLY_TIMEOUT_S) as connection:
            parts = folder.strip("/").split("/")
            for depth in range(1, len(parts) + 1):
                connection.ensure("/" + "/".join(parts[:depth]))
            connection.ensure(f"{folder}/fence")
            frames = [
                frame(
                    index + 1, CREATE, create_body(node_path(folder, index), value_of(0, index, value_bytes))
                )
                for index in range(count)
            ]
            return connection.pipelined(frames, FILL_WINDOW, allowed_errors=(0, NODE_EXISTS))

    def sync(self, host: str) -> None:
        """Wait until a server has applied everything that was acknowledged before."""
        with Connection(host) as connection:
            connection.sync()

    @contextlib.contextmanager
    def setter(self, host: str, path: str) -> Iterator[Callable[[bytes], None]]:
        """An open connection that writes one existing path when it is called."""
        with Connection(host, session_timeout_ms=LONG_SESSION_MS) as connection:

            def put(value: bytes) -> None:
                error, _zxid, _body = connection.call(SET_DATA, set_body(path, value))
                if error:
                    raise LoadError(f"{path}: a write got error {error}")

            yield put

    def writer(self, host: str, path: str) -> ReconnectingWriter:
        """A client that writes one path of its own."""
        return ReconnectingWriter(host, path)

    def leave_behind(self, host: str, path: str, timeout_s: int) -> float:
        """Make an ephemeral node and close the socket without ending the session."""
        connection = Connection(host, session_timeout_ms=timeout_s * 1000)
        with contextlib.closing(connection.socket):
            if connection.session_timeout_ms != timeout_s * 1000:
                raise LoadError(f"asked for {timeout_s} s, got {connection.session_timeout_ms} ms")
            sent_s = time.monotonic()
            error, _zxid, _body = connection.call(CREATE, create_body(path, b"", _EPHEMERAL))
            if error:
                raise LoadError(f"create {path}: error {error}")
        return sent_s

    @contextlib.contextmanager
    def watching_ends(self, host: str, paths: Sequence[str]) -> Iterator[Iterator[str]]:
        """Watch paths from one session; yields each path when it is told that the node is gone."""
        with Connection(host, session_timeout_ms=LONG_SESSION_MS, timeout_s=REPLY_TIMEOUT_S) as connection:
            connection.sync()
            for path in paths:
                error, _zxid, _body = connection.call(EXISTS, read_body(path, watch=True))
                if error == NO_NODE:
                    raise LoadInterruptedError(f"{path} ended before it was watched")
                if error:
                    raise LoadError(f"exists {path}: error {error}")
            yield self._ends(connection, len(paths))

    @staticmethod
    def _ends(connection: Connection, count: int) -> Iterator[str]:
        for _ in range(count):
            event_type, path = connection.next_event()
            if event_type != _DELETED_EVENT:
                raise LoadError(f"{path}: event {event_type} instead of its end")
            yield path

    @contextlib.contextmanager
    def watchers(self, hosts: Sequence[str], path: str) -> Iterator[list[DataWatcher]]:
        """One watcher of a node per host in hosts, each with a session of its own."""
        watchers: list[DataWatcher] = []
        try:
            for host in hosts:
                connection = Connection(host, session_timeout_ms=LONG_SESSION_MS, timeout_s=REPLY_TIMEOUT_S)
                watchers.append(DataWatcher(connection, path))
            yield watchers
        finally:
            # All at once, so that the servers end the sessions in a few batches and not one by one.
            for watcher in watchers:
                with contextlib.suppress(OSError):
                    watcher.socket.sendall(frame(_CLOSE_XID, CLOSE, b""))
            for watcher in watchers:
                with contextlib.closing(watcher.socket), contextlib.suppress(OSError):
                    while watcher.socket.recv(RECEIVE_BYTES):
                        pass
