"""Target `apply`: the state machine, given entries of any content.

An input is a program of entries: runs of commands, most of them well typed, some with an argument that is
anything at all; batches out of order; registrations, proposals and configurations. Two machines take every
entry, the second one as msgpack carries it: they must agree in results and digests, nothing may raise,
every fact that is kept twice must fit, and a snapshot must give the same state.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from quorum.core.machine import StateMachine
from quorum.core.results import Result, RunOutcome
from quorum.core.snapshot import SnapshotWalk
from tests.fuzz.choices import Choices
from tests.unit.core.driver import CONFIGURATION, SESSION_KEY, chunks_of, dump, load

ENTRIES_MAX: Final = 24
#: sessions that are there from the start, with their id as nonce
SESSIONS: Final = 3
_PATHS: Final = (
    *("/", "/a", "/a/b", "/a/c", "/a/b/d", "/e", "/c", "/c/x", "/t", "/t/y", "/a/s-", "/c/"),
    *("", "a", "//", "/a/", "/a//b", "/a/.", "/a/..", "/\0", "/\ufffd", "/\ud7ff", "/\U0001f600"),
    *("/zookeeper", "/zookeeper/config", "/zookeeper/x", "/zookeeper/quota"),
)
_ACLS: Final[tuple[list[list[Any]] | None, ...]] = (
    None,
    [[31, "world", "anyone"]],
    [],
    [[31, "auth", ""]],
    [[16, "digest", "bob:x"], [1, "world", "anyone"]],
    [[31, "ip", "10.0.0.0/8"]],
    [[0, "x509", "cn"]],
)
_IDENTITIES: Final = (
    None,
    [["ip", "10.0.0.1"]],
    [["ip", "10.0.0.1"], ["digest", "bob:x"]],
    [["super", ""]],
)
#: {operation: a letter per argument}: p path, b data, a access list, f flags, v version, t TTL, m commands
_SHAPES: Final = {
    1: "pbaf",
    15: "pbaf",
    19: "pbaf",
    21: "pbaft",
    2: "pv",
    5: "pbv",
    7: "pav",
    9: "p",
    13: "pv",
    14: "m",
    -10: "t",
    -11: "",
    -100: "",
}
_OPS: Final = (*(1, 1, 1, 15, 2, 2, 5, 14, 14), *_SHAPES)


class _Program:
    """Entries as an input decides them."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._number = 2
        self._incarnation = 5
        self._nonce = SESSIONS

    def entry(self) -> tuple[str, list[Any]]:
        """The next entry: what is applied, and its arguments behind index, term and stamp."""
        choices = self._choices
        match choices.below(16):
            case 10:
                return "batch", [choices.below(3), self._incarnation, choices.number(), choices.value()]
            case 11:
                self._incarnation += 1
                self._number = 0
                return "register", [1, self._incarnation]
            case 12:
                return "register", [choices.value(), choices.value()]
            case 13 | 14:
                return "control", [[self._proposal() for _ in range(choices.below(4))]]
            case 15:
                return "configuration", [choices.pick((CONFIGURATION, b"", b"{}", choices.blob(20)))]
            case _:
                self._number += 1
                runs = [self._run() for _ in range(1 + choices.below(3))]
                return "batch", [1, self._incarnation, self._number, runs]

    def _session(self) -> int:
        return 1 + self._choices.below(3)

    def _proposal(self) -> Any:
        choices = self._choices
        if choices.rarely(8):
            return choices.value()
        if choices.rarely(8):
            return ["level", choices.below(4)]
        if choices.below(2):
            return ["expire", self._session(), self._session(), choices.pick((0, 2**40))]
        return ["reap", choices.pick(_PATHS), choices.below(32)]

    def _run(self) -> Any:
        choices = self._choices
        session_id = choices.below(4)
        identities = choices.pick(_IDENTITIES) if not choices.rarely(8) else choices.value()
        nonce = session_id if not choices.rarely(6) else choices.below(5)
        run = [session_id, nonce, identities, [self._command() for _ in range(choices.below(6))]]
        if session_id == 0:
            self._nonce += 1
            run[1] = self._nonce
            run[3] = [[-10, 4000 + choices.below(4)]]
        return run if not choices.rarely(24) else choices.value()

    def _command(self, depth: int = 0) -> Any:
        choices = self._choices
        op = choices.pick(_OPS)
        command = [op, *(self._argument(kind, depth) for kind in _SHAPES[op])]
        if choices.rarely(6):
            command[choices.below(len(command))] = choices.value()
        if choices.rarely(24):
            command.append(choices.value())
        if choices.rarely(24):
            command.pop()
        return command

    def _argument(self, kind: str, depth: int) -> Any:
        choices = self._choices
        match kind:
            case "p":
                return choices.pick(_PATHS) if not choices.rarely(8) else "/" + choices.text(12)
            case "b":
                return choices.pick((b"", b"x", None, bytes(300)))
            case "a":
                return choices.pick(_ACLS)
            case "f":
                return choices.below(8)
            case "v":
                return choices.pick((-1, 0, 1, 2)) if not choices.rarely(6) else choices.number()
            case "t":
                return choices.pick((1, 1000, 0, -1, 2**40 - 1, 2**40))
            case _:
                return [self._command(depth + 1) for _ in range(choices.below(5))] if depth < 3 else []


def _apply(machine: StateMachine, kind: str, stamp_ms: int, arguments: list[Any]) -> Any:
    head = (machine.applied_index + 1, 3, stamp_ms)
    if kind in ("batch", "import"):
        return list(machine.apply_batch(*head, *arguments, imports=kind == "import"))
    appliers: dict[str, Any] = {
        "register": machine.apply_register,
        "control": machine.apply_control,
        "configuration": machine.apply_configuration,
    }
    return appliers[kind](*head, *arguments)


def founded(*, empty: bool = False) -> StateMachine:
    """A machine with its first entries: three sessions and, unless it is empty, nodes of every kind."""
    machine = StateMachine()
    machine.apply_found(1, 1, 1000, "c1", SESSION_KEY, CONFIGURATION)
    machine.apply_register(2, 1, 1000, 1, 5)
    sessions = [[0, nonce, None, [[-10, 4000]]] for nonce in range(1, SESSIONS + 1)]
    writes = [
        [1, "/a", b"", None, 0],
        [1, "/a/b", b"x", [[31, "auth", ""]], 0],
        [1, "/e", b"", None, 1],
        [19, "/c", b"", None, 4],
        [1, "/c/x", b"", None, 1],
        [21, "/t", b"", None, 5, 1000],
    ]
    list(machine.apply_batch(3, 1, 1000, 1, 5, 1, sessions))
    list(
        machine.apply_batch(4, 1, 1000, 1, 5, 2, [[1, 1, [["digest", "bob:x"]], writes if not empty else []]])
    )
    return machine


def _check(results: Any, zxid: int) -> None:
    """Everything that was asked has a result, and no result a zxid of the future."""
    flat: list[Result] = []
    for each in results if isinstance(results, list) else [results]:
        if isinstance(each, RunOutcome):
            flat += each.results
        elif isinstance(each, Result):
            flat.append(each)
    for result in flat:
        assert type(result.err) is int, result
        assert result.err <= 0, result
        assert 0 <= result.zxid <= zxid, result


class _Imports(_Program):
    """Entries of which most are steps of an import."""

    _floor = 0

    def entry(self) -> tuple[str, list[Any]]:
        """The next entry."""
        if self._choices.rarely(4):
            return super().entry()
        self._number += 1
        steps = [self._step() for _ in range(1 + self._choices.below(2))]
        return "import", [1, self._incarnation, self._number, steps]

    def _step(self) -> Any:
        choices = self._choices
        kind = choices.pick(("write", "write", "write", "begin", "begin", "open"))
        changes = [self._change() for _ in range(choices.below(6))]
        self._floor += 1 + choices.pick((0, 0, 100, 2**33))
        floor = self._floor if not choices.rarely(8) else choices.number()
        step: list[Any] = [kind, choices.pick(("zk", "zk", "zk", "other")), floor, changes]
        if choices.rarely(8):
            step[choices.below(4)] = choices.value()
        return step if not choices.rarely(24) else choices.value()

    def _change(self) -> Any:
        choices = self._choices
        path = self._argument("p", 0)
        if choices.rarely(4):
            return [path]
        czxid = choices.below(8)
        numbers = [czxid, czxid + choices.below(4), czxid + choices.below(9), 5, 6, choices.below(3) - 1]
        numbers += [choices.below(3), choices.below(4)]
        if choices.rarely(8):
            numbers[choices.below(8)] = choices.number()
        lifetime = choices.pick((0, 0, 0, -1, 1000, 2**40, -2))
        change = [path, choices.pick((b"", b"x", None)), choices.pick(_ACLS), numbers, lifetime]
        if choices.rarely(8):
            change[choices.below(5)] = choices.value()
        return change


class ApplyTarget:
    """Two state machines."""

    #: what their entries are, and whether their trees are empty before
    _programs: type[_Program] = _Program
    _empty = False

    def seeds(self) -> list[bytes]:
        """An entry of every kind, a command of every kind."""
        # one run of session 1 with one command of each kind, then entries of the other kinds
        kinds = [bytes([0, 0, 1, 0, 0, 0, 1, number, 0, 1, 0, 1, 0, 0]) for number in range(len(_OPS))]
        others = [bytes([kind, 1, 0, 1, 0, 1, 0, 0]) for kind in range(10, 16)]
        return [*kinds, *others, b"".join(kinds)]

    def run(self, data: bytes) -> None:
        """Apply the program to both machines."""
        choices = Choices(data)
        program = self._programs(choices)
        first, second = founded(empty=self._empty), founded(empty=self._empty)
        stamp_ms = 1000
        for _ in range(ENTRIES_MAX):
            if choices.exhausted:
                break
            kind, arguments = program.entry()
            stamp_ms += choices.pick((10, 0, 5000, -10))
            carried = msgpack.unpackb(msgpack.packb(arguments), raw=False, strict_map_key=False)
            results = _apply(first, kind, stamp_ms, arguments)
            assert _apply(second, kind, stamp_ms, carried) == results
            _check(results, first.zxid)
            first.check_invariants()
        assert (first.state_digest, first.apply_digest) == (second.state_digest, second.apply_digest)
        whole = dump(first)
        assert whole == dump(second)
        assert dump(load(chunks_of(SnapshotWalk(first)))) == whole


class ImportTarget(ApplyTarget):
    """Two state machines, into which something is imported."""

    _programs = _Imports
    _empty = True

    def seeds(self) -> list[bytes]:
        """A step of every kind, and two that write after one that begins."""
        begin, write = [0, 0, 3, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 3, 1, 0, 2, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0]
        steps = [bytes([0, 0, kind, 0, 0, 0, 0, 0, 0, 0]) for kind in range(6)]
        return [*steps, bytes([*begin, *write]), bytes([*begin, *write, *write])]
