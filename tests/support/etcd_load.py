"""The jobs of `wire_load` against etcd: the same keys, values, windows and checks, one process per job.

A job's folder and nodes are keys with the same names. "set" and "create" put without a condition, as
setData of any version does; "fenced" and "states" are transactions that compare the version of the folder's
fence (and of every state) and put; "read" is serializable, from the server's own state as ZooKeeper's reads
are, and "read_linearizable" asks the leader first. Run as `python -m tests.support.etcd_load '<JSON>'`.
Source: etcd 3.5 API guarantees (serializable and linearizable reads).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support import etcd_wire
from tests.support.etcd_wire import Guard
from tests.support.grpc_wire import GrpcConnection, Request
from tests.support.wire_load import Job, LoadError, Outcome, node_path, one_by_one, serve_job, value_of

#: an absent version: whatever it is
_ANY = -1


def key_version(znode_version: int) -> int:
    """The version of a key that was written as often as a znode with a version: a key begins with 1."""
    return znode_version + 1


def messages_of(job: Job) -> tuple[str, list[bytes]]:
    """Method and messages of a job."""
    fence = Guard(f"{job.folder}/fence", key_version(0))
    indexes = range(job.first, job.first + job.count)

    def pair(index: int) -> tuple[str, bytes]:
        return node_path(job.folder, index), value_of(job.seed, index, job.value_bytes)

    if job.kind in ("set", "create", "sync_write"):
        return etcd_wire.PUT, [etcd_wire.put(*pair(index)) for index in indexes]
    if job.kind == "fenced":
        values = [
            (node_path(job.folder, index % job.nodes), value_of(job.seed, index, job.value_bytes))
            for index in indexes
        ]
        return etcd_wire.TXN, [etcd_wire.guarded([fence], [value]) for value in values]
    if job.kind == "states":
        messages = []
        for start in range(0, job.count, job.batch):
            puts = [pair(index) for index in indexes[start : start + job.batch]]
            guards = [] if job.version == _ANY else [Guard(key, key_version(job.version)) for key, _ in puts]
            messages.append(etcd_wire.guarded([fence, *guards], puts))
        return etcd_wire.TXN, messages
    if job.kind in ("read", "read_verify", "sync_read", "read_linearizable", "sync_read_linearizable"):
        local = job.kind in ("read", "sync_read")
        keys = [node_path(job.folder, index) for index in indexes]
        return etcd_wire.RANGE, [etcd_wire.get(key, serializable=local) for key in keys]
    raise ValueError(f"a job of kind {job.kind!r} is unknown")


def _check_of(job: Job) -> Callable[[int, bytes], None] | None:
    def succeeded(index: int, message: bytes) -> None:
        if not etcd_wire.txn_succeeded(message):
            raise LoadError(f"transaction {index} failed: a version is another one")

    def verified(index: int, message: bytes) -> None:
        if etcd_wire.value_in(message) != value_of(job.seed, job.first + index, job.value_bytes):
            raise LoadError(f"{node_path(job.folder, job.first + index)} holds another value")

    checks = {"fenced": succeeded, "states": succeeded, "read_verify": verified}
    return checks.get(job.kind)


def run(connection: GrpcConnection, job: Job, requests: Sequence[Request]) -> Outcome:
    """Run a prepared job on the connection that encoded it."""
    check = _check_of(job)
    if job.kind.startswith("sync_"):
        return one_by_one([connection.pipelined([one], 1) for one in requests])
    return Outcome(job.count, connection.pipelined(requests, job.window, check))


def main() -> None:
    """Run the one job of the command line."""

    def prepare(job: Job) -> Callable[[], Outcome]:
        connection = GrpcConnection(job.host)
        method, messages = messages_of(job)
        requests = [connection.encode(method, message) for message in messages]
        return lambda: run(connection, job, requests)

    serve_job(prepare)


if __name__ == "__main__":
    main()
