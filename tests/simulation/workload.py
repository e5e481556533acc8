"""What simulated clients ask for: a mix of all operations over few nodes, so that clients meet.

Decides which operation comes next and with which arguments, from one stream of randomness per client and from
what that client has seen (versions, names of children). Values are never written twice: they name process,
number and part of their write. Knows no connection and no checker.
"""

from __future__ import annotations

import random
from typing import Any

from quorum.wire.jute import Stat
from quorum.wire.protocol import OpCode
from tests.simulation.checkers.evidence import EPHEMERAL, SEQUENTIAL

REGISTERS = tuple(f"/r{number}" for number in range(5))
DIRECTORIES = ("/d0", "/d1", "/q")
CHILDREN = tuple(f"/d{number}/c{child}" for number in range(2) for child in range(4))
EPHEMERALS = tuple(f"/d{number}/e{child}" for number in range(2) for child in range(3))
SEQUENCES = ("/q/s-", "/q/t")
PERSISTENT = REGISTERS + CHILDREN
EVERYTHING = (*REGISTERS, *DIRECTORIES, *CHILDREN, *EPHEMERALS)
#: children of a directory above which they are rather deleted
CHILDREN_MAX = 12
VALUE_BYTES_MAX = 120
WATCH_SHARE = 0.4

_WEIGHTS = {
    "get": 18,
    "exists": 8,
    "children": 8,
    "set": 16,
    "compare_and_set": 12,
    "create": 10,
    "ephemeral": 6,
    "sequential": 5,
    "directory": 1,
    "delete": 4,
    "compare_and_delete": 3,
    "multi": 9,
    "sync": 2,
}
_NAMES = tuple(_WEIGHTS)
_CUMULATED = tuple(sum(tuple(_WEIGHTS.values())[: place + 1]) for place in range(len(_WEIGHTS)))

#: (kind, path, argument), as history.py has them
Request = tuple[str, str, Any]
_OPCODES = {"delete": OpCode.DELETE, "set": OpCode.SET_DATA, "check": OpCode.CHECK}


def command_of(kind: str, path: str, argument: Any, *, with_stat: bool) -> list[Any]:
    """Return a write, or a part of a multi, as a command of quorum.wire.

    Args:
        kind: create, delete, set, check, multi, sync or close.
        path: where; "" for multi and close.
        argument: as history.py has it.
        with_stat: create by create2, which answers with a Stat.
    """
    match kind:
        case "create":
            value, flags = argument
            op = int(OpCode.CREATE2 if with_stat else OpCode.CREATE)
            return [op, path, value.encode(), None, flags]
        case "set":
            value, version = argument
            return [int(OpCode.SET_DATA), path, value.encode(), version]
        case "delete" | "check":
            return [int(_OPCODES[kind]), path, argument]
        case "multi":
            return [int(OpCode.MULTI), [command_of(*part, with_stat=with_stat) for part in argument]]
        case "sync":
            return [int(OpCode.SYNC), path]
        case _:
            return [int(OpCode.CLOSE_SESSION)]


class Workload:
    """The next requests of one client."""

    def __init__(self, process: int, rng: random.Random, *, reads_only: bool = False) -> None:
        """Begin.

        Args:
            process: whose; values name it.
            rng: its stream of randomness.
            reads_only: ask for nothing that goes through the log, so that only pings and reads keep the
                session alive.
        """
        self.reads_only = reads_only
        self._process = process
        self._rng = rng
        #: {path: version that was seen last}
        self._versions: dict[str, int] = {}
        #: {directory: paths of its children as they were seen last}
        self._listed: dict[str, list[str]] = {}
        self._values = 0

    def beginning(self) -> list[Request]:
        """Return what makes the directories."""
        return [("create", path, (self._value(), 0)) for path in DIRECTORIES]

    def next(self) -> list[Request]:
        """Return one request, or a few that belong together."""
        rng = self._rng
        if self.reads_only:
            return [self._read(rng.choice(("get", "get", "exists", "children")))]
        name = rng.choices(_NAMES, cum_weights=_CUMULATED)[0]
        if name == "sync":
            # What makes a read linearizable.
            path = rng.choice(REGISTERS)
            return [("sync", path, None), ("get", path, False)]
        if name in ("get", "exists", "children"):
            return [self._read(name)]
        if name == "multi":
            return [("multi", "", self._parts())]
        return [self._write(name)]

    def late_write(self) -> Request:
        """Return a write that must take no effect: its session has moved."""
        return "set", self._rng.choice(REGISTERS), (self._value(), -1)

    def learn(self, path: str, stat: Stat | None) -> None:
        """Remember a version that was seen; None: there is no such node."""
        if stat is None:
            self._versions.pop(path, None)
        else:
            self._versions[path] = stat.version

    def learn_children(self, path: str, names: tuple[str, ...]) -> None:
        """Remember a list of children."""
        self._listed[path] = [f"{path}/{name}" for name in names]

    def _value(self) -> str:
        self._values += 1
        return f"{self._process}.{self._values}:".ljust(self._rng.randrange(VALUE_BYTES_MAX), "x")

    def _read(self, kind: str) -> Request:
        rng = self._rng
        if kind == "children":
            path = rng.choice(DIRECTORIES)
        elif rng.random() < 0.15 and self._listed.get("/q"):
            path = rng.choice(self._listed["/q"])
        else:
            path = rng.choice(EVERYTHING)
        return kind, path, rng.random() < WATCH_SHARE

    def _write(self, name: str) -> Request:
        rng = self._rng
        match name:
            case "set":
                return "set", rng.choice(PERSISTENT + DIRECTORIES), (self._value(), -1)
            case "compare_and_set":
                path = rng.choice(PERSISTENT)
                return "set", path, (self._value(), self._expected(path))
            case "create":
                return "create", rng.choice(PERSISTENT), (self._value(), 0)
            case "ephemeral":
                return "create", rng.choice(EPHEMERALS), (self._value(), EPHEMERAL)
            case "directory":
                return "create", rng.choice(DIRECTORIES), (self._value(), 0)
            case "sequential":
                if len(self._listed.get("/q", ())) <= CHILDREN_MAX:
                    flags = SEQUENTIAL | rng.choice((0, EPHEMERAL))
                    return "create", rng.choice(SEQUENCES), (self._value(), flags)
                return "delete", self._listed["/q"].pop(0), -1
            case "delete":
                paths = self._listed.get(rng.choice(DIRECTORIES)) or EVERYTHING
                return "delete", rng.choice(paths), -1
            case _:
                path = rng.choice(PERSISTENT)
                return "delete", path, self._expected(path)

    def _expected(self, path: str) -> int:
        """Return the version seen last, now and then another one."""
        version = self._versions.get(path, 0)
        return version if self._rng.random() < 0.85 else version + self._rng.choice((-1, 1)) * (version > 0)

    def _parts(self) -> tuple[Request, ...]:
        """Return a multi on different nodes, none of them the parent of another."""
        rng = self._rng
        fence, register, other = rng.sample(REGISTERS, 3)
        child = rng.choice(CHILDREN)
        shape = rng.randrange(7)
        if shape == 0:
            return ()
        if shape == 1:
            return ("check", fence, self._expected(fence)), ("set", register, (self._value(), -1))
        if shape == 2:
            return ("check", fence, self._expected(fence)), ("create", child, (self._value(), 0))
        if shape == 3:
            return ("check", fence, self._expected(fence)), ("delete", child, -1)
        if shape == 4:
            path = rng.choice(EPHEMERALS)
            return ("create", path, (self._value(), EPHEMERAL)), ("set", register, (self._value(), -1))
        if shape == 5:
            return (
                ("set", register, (self._value(), -1)),
                ("create", rng.choice(SEQUENCES), (self._value(), SEQUENTIAL)),
                ("set", other, (self._value(), self._expected(other))),
            )
        return tuple(("set", path, (self._value(), -1)) for path in (fence, register, other))
