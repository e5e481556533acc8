"""Writers that record what was acknowledged, and the checker that compares the record with what the nodes
hold.

A writer is a process of its own (`python -m tests.support.recorded_writes '<JSON of Plan>'`): it keeps a
full window of creates and setDatas in flight on one connection, goes to another node when the connection
breaks, and writes one JSON line per invocation and per completion, so that the record stays when every node
is killed. An operation whose connection broke is "unknown". SIGTERM makes it finish what is in flight and
end. `check` reads only such records and the final values of the nodes; it knows nothing of the servers'
insides. Source: docs/internals/reliability.md, "Workloads and what judges them".
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import struct
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.nodes import eventually
from tests.support.wire_load import SET_DATA, Connection, LoadError, create_body, decode_stat, frame, set_body

CREATE2 = 15
REPLY_TIMEOUT_S = 15.0
RECONNECT_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Plan:
    """One writer: its folder of paths, where it connects first, and where it records."""

    hosts: list[str]
    folder: str
    record: str
    paths_max: int = 3000
    window: int = 64
    value_bytes: int = 100
    seed: int = 1


@dataclass
class _Operation:
    number: int
    kind: str
    path: str
    value: bytes


class Writer:
    """Keeps the window full until told to stop."""

    def __init__(self, plan: Plan) -> None:
        """Open the record; nothing is sent yet."""
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._record = Path(plan.record).open("w", buffering=1 << 16, encoding="ascii")  # noqa: SIM115 - lives as long as the writer
        self._number = 0
        self._created = 0
        self._stopping = False
        self._session: tuple[int, bytes] | None = None
        self._host = 0
        self._connection: Connection | None = None

    def stop(self, _signal: int, _frame: object) -> None:
        """Take the signal: no more invocations."""
        self._stopping = True

    def run(self) -> None:
        """Write until stopped."""
        try:
            while not self._stopping:
                eventually(lambda: self._stopping or self._connect(), RECONNECT_DEADLINE_S, "a node answers")
                if self._connection is not None:
                    with contextlib.closing(self._connection.socket):
                        self._drive(self._connection)
                    self._connection = None
        finally:
            self._record.close()

    def _connect(self) -> bool:
        """Connect to the next node; resume the session, or begin another when it is gone."""
        host = self._plan.hosts[self._host % len(self._plan.hosts)]
        try:
            # Without the last zxid seen: a node that lost writes must let it in, so that the checker tells.
            connection = Connection(host, timeout_s=REPLY_TIMEOUT_S, resume=self._session)
        except LoadError:
            self._session = None
            return False
        except (OSError, struct.error):
            self._host += 1
            return False
        self._session = (connection.session_id, connection.password)
        self._connection = connection
        return True

    def _drive(self, connection: Connection) -> None:
        pending: deque[_Operation] = deque()
        xid = 0
        try:
            replies = replies_of(connection)
            while True:
                burst = [] if self._stopping else self._invoke(self._plan.window - len(pending))
                if burst:
                    frames = []
                    for operation in burst:
                        xid += 1
                        frames.append(_encode(operation, xid))
                    pending.extend(burst)
                    connection.socket.sendall(b"".join(frames))
                elif not pending:
                    return
                for error, body in next(replies):
                    self._complete(pending.popleft(), error, body)
        except OSError:
            self._host += 1
        for operation in pending:
            self._note({"type": "unknown", "op": operation.number})
        self._record.flush()

    def _invoke(self, room: int) -> list[_Operation]:
        burst = []
        for _ in range(room):
            self._number += 1
            value = b"%d:%d:" % (self._plan.seed, self._number)
            value += self._random.randbytes(self._plan.value_bytes // 2).hex().encode()
            if self._created < self._plan.paths_max:
                self._created += 1
                kind, path = "create", f"{self._plan.folder}/n{self._created:06d}"
            else:
                kind, path = "set", f"{self._plan.folder}/n{self._random.randint(1, self._created):06d}"
            operation = _Operation(self._number, kind, path, value)
            self._note(
                {"type": "invoke", "op": self._number, "kind": kind, "path": path, "value": value.decode()}
            )
            burst.append(operation)
        return burst

    def _complete(self, operation: _Operation, error: int, body: bytes) -> None:
        if error:
            self._note({"type": "fail", "op": operation.number, "error": error})
            return
        # create2 answers with the path and its Stat, setData with the Stat alone.
        offset = 4 + struct.unpack_from(">i", body)[0] if operation.kind == "create" else 0
        stat = decode_stat(body[offset:])
        self._note({"type": "ok", "op": operation.number, "version": stat.version, "zxid": stat.mzxid})

    def _note(self, line: dict[str, Any]) -> None:
        self._record.write(json.dumps(line, separators=(",", ":")) + "\n")


def _encode(operation: _Operation, xid: int) -> bytes:
    if operation.kind == "create":
        return frame(xid, CREATE2, create_body(operation.path, operation.value))
    return frame(xid, SET_DATA, set_body(operation.path, operation.value))


def replies_of(connection: Connection) -> Iterator[list[tuple[int, bytes]]]:
    """Yield, per chunk received, the replies that it completed: (error code, body).

    Raises:
        OSError: the connection broke.
        LoadError: the replies are not in the order of the requests.
    """
    data = connection.leftover()
    expected = 1
    while True:
        replies = []
        position = 0
        while len(data) - position >= 20:
            length, xid, _zxid, error = struct.unpack_from(">iiqi", data, position)
            if len(data) - position < 4 + length:
                break
            if xid >= 0:
                if xid != expected:
                    raise LoadError(f"reply to xid {xid}, expected {expected}")
                expected += 1
                replies.append((error, data[position + 20 : position + 4 + length]))
            position += 4 + length
        data = data[position:]
        if replies:
            yield replies
        chunk = connection.socket.recv(1 << 18)
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        data += chunk


@dataclass
class PathHistory:
    """All operations on one path, in the order of their invocation by its one writer."""

    values: dict[int, str] = field(default_factory=dict)  # operation number → value
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)  # (number, version, zxid)
    unknown: list[int] = field(default_factory=list)
    failed: list[tuple[int, int]] = field(default_factory=list)  # (number, error code)


@dataclass
class History:
    """The records of all writers, by path."""

    paths: dict[str, PathHistory] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0

    @classmethod
    def read(cls, records: Iterable[Path]) -> History:
        """Read record files; an operation without a completion counts as unknown."""
        history = cls()
        for record in records:
            history._add(record)
        return history

    def _add(self, record: Path) -> None:
        open_operations: dict[int, PathHistory] = {}
        with record.open(encoding="ascii") as lines:
            for text in lines:
                line = json.loads(text)
                number = line["op"]
                if line["type"] == "invoke":
                    path = self.paths.setdefault(line["path"], PathHistory())
                    path.values[number] = line["value"]
                    open_operations[number] = path
                    continue
                path = open_operations.pop(number)
                if line["type"] == "ok":
                    path.acknowledged.append((number, line["version"], line["zxid"]))
                    self.acknowledged += 1
                elif line["type"] == "fail":
                    path.failed.append((number, line["error"]))
                else:
                    path.unknown.append(number)
                    self.unknown += 1
        for number, path in open_operations.items():
            path.unknown.append(number)
            self.unknown += 1


@dataclass(frozen=True)
class Final:
    """What a node holds at a path in the end."""

    value: str
    version: int
    czxid: int
    mzxid: int


def check(history: History, finals: Mapping[str, Mapping[str, Final]]) -> list[str]:
    """Compare what was acknowledged with what each node holds.

    Args:
        history: the records.
        finals: {node name: {path: what it holds}}.

    Returns:
        One line per violation: an acknowledged write that is not there, a value that nobody wrote, a failed
        write that appears, an unknown one that counts twice, nodes that differ, zxids that do not rise.
    """
    violations: list[str] = []
    zxids: dict[int, str] = {}
    for path, done in history.paths.items():
        for number, _version, zxid in done.acknowledged:
            if zxid in zxids:
                violations.append(
                    f"{path}: zxid {zxid} of operation {number} was also given to {zxids[zxid]}"
                )
            zxids[zxid] = path
        violations += _check_order(path, done)
        held = {name: final.get(path) for name, final in finals.items()}
        if len(set(held.values())) > 1:
            violations.append(f"{path}: the nodes differ: {held}")
        for name, final in held.items():
            violations += [f"{path} on {name}: {problem}" for problem in _check_final(done, final)]
    written = set(history.paths)
    for name, final_paths in finals.items():
        violations += [f"{path} on {name}: nobody wrote it" for path in final_paths if path not in written]
    return violations


def _check_order(path: str, done: PathHistory) -> list[str]:
    """Acknowledged writes of one path: versions and zxids rise together, by one plus unknown ones at most."""
    problems = []
    ordered = sorted(done.acknowledged)
    for (_, version, zxid), (number, next_version, next_zxid) in itertools.pairwise(ordered):
        if not (version < next_version and zxid < next_zxid):
            problems.append(
                f"{path}: operation {number} got version {next_version}, zxid {next_zxid} "
                f"after version {version}, zxid {zxid}"
            )
        if next_version - version > 1 + len(done.unknown):
            problems.append(f"{path}: version rose from {version} to {next_version}: something counted twice")
    return problems


def _check_final(done: PathHistory, final: Final | None) -> list[str]:
    if final is None:
        return [f"acknowledged {done.acknowledged} and gone"] if done.acknowledged else []
    writers = [number for number, value in done.values.items() if value == final.value]
    if not writers:
        return [f"holds a value that nobody wrote: {final.value!r}"]
    writer = writers[0]
    problems = []
    if any(number == writer for number, _ in done.failed):
        problems.append(f"holds the value of operation {writer}, which failed")
    if not done.acknowledged:
        return problems
    number, version, zxid = max(done.acknowledged)
    first, first_version, first_zxid = min(done.acknowledged)
    if final.version < version:
        problems.append(f"version {final.version} < {version}, acknowledged to operation {number}")
    elif final.version == version and (writer != number or final.mzxid != zxid):
        problems.append(
            f"version {version} holds operation {writer} (mzxid {final.mzxid}), "
            f"acknowledged to operation {number} (zxid {zxid})"
        )
    elif final.version > version + len(done.unknown):
        problems.append(f"version {final.version} > {version} + {len(done.unknown)} unknown: counted twice")
    elif final.version > version and writer not in done.unknown:
        problems.append(f"version {final.version} holds operation {writer}, which was acknowledged as older")
    if first_version == 0 and final.czxid != first_zxid:
        problems.append(f"czxid {final.czxid}, but operation {first} created it with zxid {first_zxid}")
    return problems


def main() -> None:
    """Run the writer of the command line."""
    plan = Plan(**json.loads(sys.argv[1]))
    writer = Writer(plan)
    signal.signal(signal.SIGTERM, writer.stop)
    writer.run()


if __name__ == "__main__":
    main()
