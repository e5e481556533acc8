"""A cheap load generator for servers that speak ZooKeeper's protocol.

Blocking sockets, frames encoded before the clock starts, one process per connection, bounded counts: so that
the client is not what is measured, and the same client loads every server alike. The replies are checked
(order of xids, error codes), not decoded further than asked. It knows nothing of sessions that must outlive
a connection. Run as `python -m tests.support.wire_load '<JSON of Job>'` it prepares one job, prints "ready",
waits for a line on its standard input, runs, and prints the result as JSON; `run_jobs` does that for several
at once. Source: ZooKeeper's jute records (ConnectRequest, RequestHeader, ReplyHeader, MultiHeader) as of
3.9.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, SYNC, CHECK, MULTI, CLOSE = 1, 2, 3, 4, 5, 9, 13, 14, -11
NODE_EXISTS = -110
RECEIVE_BYTES = 1 << 18
JOB_DEADLINE_S = 600.0
#: exit code of a job that a server ended
INTERRUPTED = 3
ANY_VERSION = -1

_HEADER = struct.Struct(">iiqi")  # length, xid, zxid, err
_ACL_WORLD = struct.pack(">ii", 1, 31) + struct.pack(">i", 5) + b"world" + struct.pack(">i", 6) + b"anyone"
_MULTI_HEADER = struct.Struct(">i?i")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)
_NO_PASSWORD = bytes(16)
_EVENT_XID = struct.pack(">i", -1)


class LoadError(RuntimeError):
    """A reply that the load did not expect, or a connection that ended."""


class LoadInterruptedError(LoadError):
    """The server ended a load that was right so far: it closed the connection, or refused for now."""


@dataclass(frozen=True)
class Stat:
    """A znode's Stat as on the wire."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children_count: int
    pzxid: int


_STAT = struct.Struct(">qqqqiiiqiiq")


def buffer(value: bytes | None) -> bytes:
    """Encode jute's buffer or string; None has length -1."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def frame(xid: int, opcode: int, body: bytes) -> bytes:
    """A request frame with its length."""
    return struct.pack(">iii", 8 + len(body), xid, opcode) + body


def create_body(path: str, value: bytes, flags: int = 0) -> bytes:
    """CreateRequest open to everybody."""
    return buffer(path.encode()) + buffer(value) + _ACL_WORLD + struct.pack(">i", flags)


def set_body(path: str, value: bytes, version: int = ANY_VERSION) -> bytes:
    """SetDataRequest."""
    return buffer(path.encode()) + buffer(value) + struct.pack(">i", version)


def read_body(path: str, *, watch: bool = False) -> bytes:
    """GetDataRequest or ExistsRequest."""
    return buffer(path.encode()) + struct.pack(">?", watch)


def check_body(path: str, version: int) -> bytes:
    """CheckVersionRequest, also DeleteRequest."""
    return buffer(path.encode()) + struct.pack(">i", version)


def multi_body(operations: Sequence[tuple[int, bytes]]) -> bytes:
    """MultiTransactionRecord of (opcode, body) pairs."""
    parts = [_MULTI_HEADER.pack(opcode, False, -1) + body for opcode, body in operations]
    return b"".join(parts) + _MULTI_END


def decode_get(body: bytes) -> tuple[bytes, Stat]:
    """Split a GetDataResponse."""
    (length,) = struct.unpack_from(">i", body)
    length = max(length, 0)
    return body[4 : 4 + length], decode_stat(body[4 + length :])


def decode_stat(body: bytes) -> Stat:
    """Decode a Stat at the beginning of body."""
    return Stat(*_STAT.unpack_from(body))


class Connection:
    """One blocking connection with a session."""

    def __init__(
        self,
        host: str,
        *,
        session_timeout_ms: int = 20000,
        timeout_s: float = 30.0,
        resume: tuple[int, bytes] | None = None,
        zxid_seen: int = 0,
    ) -> None:
        """Connect and shake hands.

        Args:
            host: "address:port".
            session_timeout_ms: session timeout to ask for.
            timeout_s: how long any reply may take.
            resume: (session id, password) of a session to resume; a new one when absent.
            zxid_seen: the last zxid that the client saw.

        Raises:
            OSError: nobody listens, or the connection broke.
            LoadError: the session to resume is gone.
        """
        address, _, port = host.rpartition(":")
        self.socket = socket.create_connection((address, int(port)), timeout=timeout_s)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            session_id, password = resume or (0, _NO_PASSWORD)
            request = struct.pack(">iqiq", 0, zxid_seen, session_timeout_ms, session_id)
            request += buffer(password) + b"\x00"
            self.socket.sendall(struct.pack(">i", len(request)) + request)
            self._buffered = b""
            reply = self._read_frame()
            _, self.session_timeout_ms, self.session_id = struct.unpack_from(">iiq", reply)
            (length,) = struct.unpack_from(">i", reply, 16)
            self.password = reply[20 : 20 + length]
            if self.session_id == 0:
                raise LoadError(f"{host}: session {session_id:#x} is gone")
        except BaseException:
            self.socket.close()
            raise

    def _read_frame(self) -> bytes:
        while True:
            if len(self._buffered) >= 4:
                end = 4 + int.from_bytes(self._buffered[:4])
                if len(self._buffered) >= end:
                    found, self._buffered = self._buffered[4:end], self._buffered[end:]
                    return found
            self._receive()

    def _receive(self) -> None:
        chunk = self.socket.recv(RECEIVE_BYTES)
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        self._buffered += chunk

    def leftover(self) -> bytes:
        """Hand over what was received and not yet read, to a caller that reads the socket from now on."""
        data, self._buffered = self._buffered, b""
        return data

    def call(self, opcode: int, body: bytes, xid: int = 1) -> tuple[int, int, bytes]:
        """Send one request and wait for its reply: (error code, zxid, body); drops watch events."""
        self.socket.sendall(frame(xid, opcode, body))
        while True:
            reply = self._read_frame()
            reply_xid, zxid, error = struct.unpack_from(">iqi", reply)
            if reply_xid == xid:
                return error, zxid, reply[16:]
            if reply_xid != -1:
                raise LoadError(f"reply to xid {reply_xid} instead of {xid}")

    def next_event(self) -> tuple[int, str]:
        """Wait for the next watch event: (type, path); drops replies."""
        while True:
            found = self._read_frame()
            if found.startswith(_EVENT_XID):
                event_type, _state, length = struct.unpack_from(">iii", found, 16)
                return event_type, found[28 : 28 + length].decode()

    def pipelined(
        self,
        frames: Sequence[bytes],
        window: int,
        on_reply: Callable[[int, int, bytes], None] | None = None,
        *,
        allowed_errors: Sequence[int] = (0,),
    ) -> float:
        """Send frames (numbered by xid from 1) with at most window unanswered; return the seconds it took.

        Args:
            frames: whole frames; frame i has xid i + 1.
            window: most requests in flight.
            on_reply: called with (index of the frame, zxid, body of the reply), in order.
            allowed_errors: error codes that do not fail the load.

        Raises:
            LoadError: a reply out of order, or with another error code.
        """
        total, received = len(frames), 0
        sent = min(window, total)
        allowed = frozenset(allowed_errors)
        started = time.perf_counter()
        self.socket.sendall(b"".join(frames[:sent]))
        while received < total:
            self._receive()
            data, size, position, before = self._buffered, len(self._buffered), 0, received
            while size - position >= 20:
                length, xid, zxid, error = _HEADER.unpack_from(data, position)
                end = position + 4 + length
                if end > size:
                    break
                if xid != -1:
                    if xid != received + 1 or error not in allowed:
                        raise LoadError(f"reply {received + 1}: xid {xid}, error {error}")
                    if on_reply is not None:
                        on_reply(received, zxid, data[position + 20 : end])
                    received += 1
                position = end
            self._buffered = data[position:]
            if sent < total and received > before:
                upto = min(total, sent + received - before)
                self.socket.sendall(b"".join(frames[sent:upto]))
                sent = upto
        return time.perf_counter() - started

    def sync(self) -> None:
        """Wait until this server applied everything committed before."""
        error, _, _ = self.call(SYNC, buffer(b"/"))
        if error:
            raise LoadError(f"sync: error {error}")

    def ensure(self, path: str) -> None:
        """Create a persistent node unless it exists."""
        error, _, _ = self.call(CREATE, create_body(path, b""))
        if error not in (0, NODE_EXISTS):
            raise LoadError(f"create {path}: error {error}")

    def close(self) -> None:
        """End the session and the connection."""
        try:
            self.socket.settimeout(5.0)
            self.socket.sendall(frame(0x7FFFFFFF, CLOSE, b""))
            while self.socket.recv(RECEIVE_BYTES):
                pass
        except OSError:
            pass  # the session then ends by its timeout; a measurement is over either way
        finally:
            self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def value_of(seed: int, index: int, size: int) -> bytes:
    """The random value that node `index` of a load with this seed gets."""
    return random.Random(f"{seed}-{index}").randbytes(size)


def node_path(folder: str, index: int) -> str:
    """Path of node `index`."""
    return f"{folder}/n{index:07d}"


@dataclass(frozen=True)
class Job:
    """One connection's work.

    kind is "create" (distinct paths), "set" (over existing paths of a create job), "read" and "read_verify"
    (of the same paths; the second compares every value and checks czxid = mzxid order), "fenced" (multi of
    check on the folder's fence node and setData), "states" (multis of check on the fence and `batch` setData
    that demand `version`), "sync_write" and "sync_read" (one request at a time, latencies).
    """

    host: str
    kind: str
    folder: str
    count: int
    window: int = 64
    value_bytes: int = 100
    seed: int = 1
    first: int = 0
    #: "fenced" goes round over so many nodes
    nodes: int = 1000
    #: "states": setData in one multi
    batch: int = 1
    version: int = ANY_VERSION


@dataclass(frozen=True)
class Outcome:
    """What a job measured: seconds for all requests; latencies in milliseconds if one by one."""

    count: int
    elapsed_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def prepare(job: Job) -> list[bytes]:
    """Encode all frames of a job."""
    indexes = range(job.first, job.first + job.count)
    fence = (CHECK, check_body(f"{job.folder}/fence", 0))

    def value(index: int) -> bytes:
        return value_of(job.seed, index, job.value_bytes)

    def fenced(index: int) -> bytes:
        path = node_path(job.folder, index % job.nodes)
        return multi_body([fence, (SET_DATA, set_body(path, value(index)))])

    def states(start: int) -> bytes:
        batch = range(start, min(start + job.batch, indexes.stop))
        sets = [set_body(node_path(job.folder, index), value(index), job.version) for index in batch]
        return multi_body([fence, *((SET_DATA, body) for body in sets)])

    def write(index: int) -> bytes:
        return set_body(node_path(job.folder, index), value(index))

    def create(index: int) -> bytes:
        return create_body(node_path(job.folder, index), value(index))

    def read(index: int) -> bytes:
        return read_body(node_path(job.folder, index))

    kinds: dict[str, tuple[int, Callable[[int], bytes]]] = {
        "create": (CREATE, create),
        "set": (SET_DATA, write),
        "sync_write": (SET_DATA, write),
        "read": (GET_DATA, read),
        "read_verify": (GET_DATA, read),
        "sync_read": (GET_DATA, read),
        "fenced": (MULTI, fenced),
        "states": (MULTI, states),
    }
    opcode, body = kinds[job.kind]
    return [frame(number, opcode, body(index)) for number, index in enumerate(indexes[:: job.batch], start=1)]


def one_by_one(seconds: Sequence[float]) -> Outcome:
    """What requests that waited for each other measured, from how long each took."""
    ordered = sorted(seconds)
    return Outcome(
        len(ordered),
        sum(ordered),
        ordered[len(ordered) // 2] * 1000.0,
        ordered[len(ordered) * 99 // 100] * 1000.0,
    )


def run(connection: Connection, job: Job, frames: Sequence[bytes]) -> Outcome:
    """Run a prepared job on an open connection."""
    if job.kind.startswith("sync_"):
        seconds = []
        for one in frames:
            renumbered = [one[:4] + struct.pack(">i", 1) + one[8:]]
            seconds.append(connection.pipelined(renumbered, 1))
        return one_by_one(seconds)
    on_reply: Callable[[int, int, bytes], None] | None = None
    if job.kind == "read_verify":

        def verify(index: int, _zxid: int, body: bytes) -> None:
            value, _stat = decode_get(body)
            if value != value_of(job.seed, job.first + index, job.value_bytes):
                raise LoadError(f"{node_path(job.folder, job.first + index)} holds another value")

        on_reply = verify
    elif job.kind in ("fenced", "states"):

        def succeeded(index: int, _zxid: int, body: bytes) -> None:
            if _MULTI_HEADER.unpack_from(body)[0] != CHECK:
                raise LoadError(f"multi {index} failed: {body!r}")

        on_reply = succeeded
    return Outcome(job.count, connection.pipelined(frames, job.window, on_reply))


def run_jobs(jobs: Sequence[Job], program: str = "tests.support.wire_load") -> list[Outcome]:
    """Run each job in a process of its own, all starting at once.

    Args:
        jobs: what to run.
        program: the module that carries out a job of the command line.

    Raises:
        LoadInterruptedError: a server ended a job; carries what the job printed.
        LoadError: a job failed otherwise.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", program, json.dumps(asdict(job))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for job in jobs
    ]
    outcomes: list[Outcome] = []
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise _failure(process, process.communicate()[1])
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            output, errors = process.communicate(timeout=JOB_DEADLINE_S)
            if process.returncode:
                raise _failure(process, errors)
            outcomes.append(Outcome(**json.loads(output)))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return outcomes


def _failure(process: subprocess.Popen[str], errors: str) -> LoadError:
    kind = LoadInterruptedError if process.returncode == INTERRUPTED else LoadError
    return kind(f"a load process failed: {errors}")


def serve_job(prepare_job: Callable[[Job], Callable[[], Outcome]]) -> None:
    """Carry out the one job of the command line: prepare it, say so, wait for the word, run it, tell.

    Args:
        prepare_job: connects and encodes; returns what the clock is about.
    """
    try:
        measured = prepare_job(Job(**json.loads(sys.argv[1])))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if sys.stdin.readline() == "go\n":
            sys.stdout.write(json.dumps(asdict(measured())) + "\n")
    except (OSError, LoadInterruptedError):
        traceback.print_exc()
        sys.exit(INTERRUPTED)


def main() -> None:
    """Run the one job of the command line."""
    with contextlib.ExitStack() as stack:

        def prepare_job(job: Job) -> Callable[[], Outcome]:
            frames = prepare(job)
            connection = stack.enter_context(Connection(job.host))
            return lambda: run(connection, job, frames)

        serve_job(prepare_job)


if __name__ == "__main__":
    main()
