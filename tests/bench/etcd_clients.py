"""Clients of etcd's v3 API over gRPC, in the shape that the cases ask for.

A session is a lease without keep-alives, a watcher is a watch stream on a connection of its own, and a put
carries no condition unless a case is about conditions. Knows nothing of what is measured.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from tests.support import etcd_wire
from tests.support.grpc_wire import GrpcConnection
from tests.support.wire_load import LoadError, LoadInterruptedError, node_path, value_of

FILL_WINDOW = 256
REPLY_TIMEOUT_S = 60.0
#: A put that a lost leader never saw is answered only after seven seconds, but puts are independent of each
#: other: a client that wants to go on sends the next one after so long.
PATIENCE_S = 0.1


class ImpatientWriter:
    """Puts one key, again and again; does not wait long for a put that got lost."""

    def __init__(self, host: str, path: str) -> None:
        """Say what is written; the first write connects."""
        self._host, self._path = host, path
        self._connection: GrpcConnection | None = None

    def write(self, number: int) -> None:
        """Write once and wait for the acknowledgement.

        Raises:
            TimeoutError: none came in time; what was sent is left behind.
            OSError: the connection broke; the next write opens another one.
            LoadError: the server refused.
        """
        if self._connection is None:
            self._connection = GrpcConnection(self._host)
        try:
            self._connection.call(
                etcd_wire.PUT, etcd_wire.put(self._path, b"%0100d" % number), timeout_s=PATIENCE_S
            )
        except TimeoutError:
            raise
        except OSError:
            self._connection.close()
            self._connection = None
            raise

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()


class StreamWatcher:
    """A watch stream for one key on a connection of its own."""

    def __init__(self, host: str, path: str) -> None:
        """Connect and wait until the watch stands."""
        self._connection = GrpcConnection(host, timeout_s=REPLY_TIMEOUT_S)
        self.socket: socket.socket = self._connection.socket
        self._connection.open_stream(etcd_wire.WATCH, etcd_wire.watch_create(path))
        self._connection.next_message()

    def arm(self) -> None:
        """Nothing: a stream goes on."""

    def take(self) -> bool:
        """Take in what has arrived; says whether the event was among it."""
        ended = self._connection.receive()
        if ended:
            raise LoadError(f"a watch ended: {ended[0]}")
        told = False
        while self._connection.messages:
            _stream_id, message = self._connection.messages.popleft()
            told = bool(etcd_wire.events(message)) or told
        return told

    def close(self) -> None:
        """End the connection, and the watch with it."""
        self._connection.close()


class EtcdClients:
    """Opens the connections."""

    program = "tests.support.etcd_load"
    #: beside each put stands a comparison, and the fence's beside them
    states_per_request = etcd_wire.OPERATIONS_MAX - 1
    linearizable_reads = True

    def fill(self, host: str, folder: str, count: int, value_bytes: int = 100) -> float:
        """Put the fence and all keys that are not there yet. Returns seconds."""
        with GrpcConnection(host, timeout_s=REPLY_TIMEOUT_S) as connection:
            last = node_path(folder, count - 1) if count else f"{folder}/fence"
            found = connection.call(etcd_wire.RANGE, etcd_wire.get(last, serializable=False))
            if etcd_wire.value_in(found) is not None:
                return 0.0
            connection.call(etcd_wire.PUT, etcd_wire.put(f"{folder}/fence", b""))
            puts = (
                etcd_wire.put(node_path(folder, index), value_of(0, index, value_bytes))
                for index in range(count)
            )
            return connection.pipelined([connection.encode(etcd_wire.PUT, put) for put in puts], FILL_WINDOW)

    def sync(self, host: str) -> None:
        """Make one linearizable read."""
        with GrpcConnection(host) as connection:
            connection.call(etcd_wire.RANGE, etcd_wire.get("/", serializable=False))

    @contextlib.contextmanager
    def setter(self, host: str, path: str) -> Iterator[Callable[[bytes], None]]:
        """An open connection that puts one key when it is called."""
        with GrpcConnection(host) as connection:

            def put(value: bytes) -> None:
                connection.call(etcd_wire.PUT, etcd_wire.put(path, value))

            yield put

    def writer(self, host: str, path: str) -> ImpatientWriter:
        """A client that writes one key of its own."""
        return ImpatientWriter(host, path)

    def leave_behind(self, host: str, path: str, timeout_s: int) -> float:
        """Put a key under a lease that nobody keeps alive."""
        with GrpcConnection(host) as connection:
            sent_s = time.monotonic()
            granted = connection.call(etcd_wire.LEASE_GRANT, etcd_wire.lease_grant(timeout_s))
            lease_id, ttl_s = etcd_wire.granted(granted)
            if ttl_s != timeout_s:
                raise LoadError(f"asked for {timeout_s} s, got {ttl_s} s")
            connection.call(etcd_wire.PUT, etcd_wire.put(path, b"", lease_id))
        return sent_s

    @contextlib.contextmanager
    def watching_ends(self, host: str, paths: Sequence[str]) -> Iterator[Iterator[str]]:
        """Watch keys over one connection; yields each key when it is told that it is gone."""
        with GrpcConnection(host, timeout_s=REPLY_TIMEOUT_S) as connection:
            for path in paths:
                connection.open_stream(etcd_wire.WATCH, etcd_wire.watch_create(path))
                connection.next_message()
                found = connection.call(etcd_wire.RANGE, etcd_wire.get(path, serializable=False))
                if etcd_wire.value_in(found) is None:
                    raise LoadInterruptedError(f"{path} ended before it was watched")
            yield self._ends(connection, len(paths))

    @staticmethod
    def _ends(connection: GrpcConnection, count: int) -> Iterator[str]:
        told = 0
        while told < count:
            for event in etcd_wire.events(connection.next_message()):
                if not event.deleted:
                    raise LoadError(f"{event.key} was written instead of ended")
                told += 1
                yield event.key

    @contextlib.contextmanager
    def watchers(self, hosts: Sequence[str], path: str) -> Iterator[list[StreamWatcher]]:
        """One watcher of a key per host in hosts, each on a connection of its own."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(contextlib.closing(StreamWatcher(host, path))) for host in hosts]
