"""What the client port writes to the audit log: sessions, writes, refused reads, proofs that failed.

Decides the words, ZooKeeper's where it has one, what a principal is called, and what of a command may be
written: its operation and path, never data, an access list or a credential. A node writes what its own
clients did; what ends by time, the leader writes. Soft state only.

Source: AuditConstants, AuditHelper and ZKAuditProvider of ZooKeeper 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from quorum.core import queries
from quorum.core.codes import (
    EVENT_DELETED,
    NO_AUTH,
    OK,
    OP_CHECK,
    OP_CLOSE_SESSION,
    OP_CREATE,
    OP_CREATE2,
    OP_CREATE_CONTAINER,
    OP_CREATE_TTL,
    OP_DELETE,
    OP_MULTI,
    OP_SET_ACL,
    OP_SET_DATA,
    SESSION_CLOSED,
)
from quorum.core.machine import CONFIG_PATH, StateMachine
from quorum.core.results import MultiItem, Result, RunOutcome
from quorum.platform.audit import ALLOWED, DENIED, FAILED, UNKNOWN, AuditLog
from quorum.wire.protocol import OpCode

#: what is known of a command that was submitted: (operation, path); of a multi, that of each of its parts
Subject: TypeAlias = "tuple[int, str | list[tuple[int, str]]]"

_WORDS: Final = {
    OP_CREATE: "create",
    OP_CREATE2: "create",
    OP_CREATE_CONTAINER: "create",
    OP_CREATE_TTL: "create",
    OP_DELETE: "delete",
    OP_SET_DATA: "setData",
    OP_SET_ACL: "setAcl",
    OP_CHECK: "check",
    OP_CLOSE_SESSION: "closeSession",
}
#: of a name that nobody has proved
_CLAIMED_CHARS_MAX: Final = 255
#: what ZooKeeper's audit log has no word for is called as its opcode is
_READS: Final = {
    int(OpCode.EXISTS): "exists",
    int(OpCode.GET_DATA): "getData",
    int(OpCode.GET_CHILDREN): "getChildren",
    int(OpCode.GET_CHILDREN2): "getChildren2",
    int(OpCode.GET_ACL): "getACL",
    int(OpCode.GET_ALL_CHILDREN_NUMBER): "getAllChildrenNumber",
    int(OpCode.GET_EPHEMERALS): "getEphemerals",
}
_MULTI_READ: Final = int(OpCode.MULTI_READ)
_EPHEMERAL_GONE: Final = "ephemeralZNodeDeletionOnSessionCloseOrExpire"
#: where the error stands in a reply: behind length, xid and zxid
_ERROR_AT: Final = slice(16, 20)
_REFUSED: Final = NO_AUTH.to_bytes(4, "big", signed=True)


Identities: TypeAlias = "list[list[str]] | None"


class Addressed(Protocol):
    """The bytes of a client, of which only their origin counts here."""

    @property
    def address(self) -> str:
        """Return host:port."""


class AuditedClient(Protocol):
    """A client connection, as far as the audit log knows one."""

    session_id: int
    identities: Identities

    @property
    def stream(self) -> Addressed:
        """Where it comes from."""


def principal_of(identities: Identities) -> str:
    """Return what a client has proven: of a digest the name alone, the address last."""
    names = []
    for scheme, name in identities or ():
        # The id of digest has a hash of the password, with which an access list could be met by guessing.
        names.append(f"{scheme}:{name.partition(':')[0] if scheme == 'digest' else name}")
    return ",".join(sorted(names, key=lambda name: name.startswith("ip:")))


class Submitted(NamedTuple):
    """What may be known of a run that was handed to the log.

    Attributes:
        principal: who had asked. xids, subjects: of each command.
    """

    principal: str
    xids: list[int]
    subjects: list[Subject]

    @classmethod
    def of(cls, identities: Identities, xids: list[int], commands: Iterable[list[Any]]) -> Submitted:
        """Take from commands what may be known of them."""
        return cls(principal_of(identities), xids, [_subject_of(each) for each in commands])


def _subject_of(command: list[Any]) -> Subject:
    op = command[0]
    if op == OP_MULTI:
        return op, [(part[0], str(part[1])) for part in command[1]]
    return op, str(command[1]) if len(command) > 1 else ""


def _outcome_of(err: int) -> str:
    if err == OK:
        return ALLOWED
    return DENIED if err == NO_AUTH else FAILED


class ClientAudit:
    """The audit log, as client connections write to it."""

    def __init__(self, log: AuditLog, node: str) -> None:
        """Write to a log.

        Args:
            log: of the process. node: the principal of what a node does by itself, "node:1".
        """
        self.log = log
        self._node = node

    def started(self) -> None:
        """The node begins to serve."""
        self.log.write(self._node, "", "serverStart", "", ALLOWED)

    def stopped(self) -> None:
        """The node begins to stop."""
        self.log.write(self._node, "", "serverStop", "", ALLOWED)

    def wrote(self, client: AuditedClient, run: Submitted, outcome: RunOutcome | None) -> None:
        """A run has an outcome; None: nobody here will know it."""
        results = [None] * len(run.xids) if outcome is None else outcome.results
        session = f"0x{client.session_id:x}"
        principal, address, write = run.principal, client.stream.address, self.log.write
        for xid, (op, about), result in zip(run.xids, run.subjects, results, strict=True):
            for word, path, ended in _parts(op, about, result):
                write(principal, address, word, path, ended, request=xid, session=session)
            if op == OP_CLOSE_SESSION and result is not None and result.err == OK:
                self._gone(session, result.events or ())

    def answered(
        self, machine: StateMachine, client: AuditedClient, xid: int, op: int, body: Any, reply: bytes
    ) -> None:
        """A read was answered; a refusal is worth a line."""
        if op == _MULTI_READ:
            for _, path in body or ():
                if queries.get_data(machine, path, client.identities) == NO_AUTH:
                    self._write(client, xid, "multiRead", path, DENIED)
        elif reply[_ERROR_AT] == _REFUSED and op in _READS:
            self._write(client, xid, _READS[op], str(body[0] if isinstance(body, tuple) else body), DENIED)

    def session(self, client: AuditedClient, word: str, outcome: str = ALLOWED) -> None:
        """A session begins, is resumed, or is not."""
        self._write(client, None, word, "", outcome)

    def proof(self, client: AuditedClient, xid: int, scheme: str, claimed: str) -> None:
        """A proof is wrong, or one that all must give is missing; claimed: the unproved name, or ""."""
        self._write(client, xid, "auth", scheme, DENIED, claimed[:_CLAIMED_CHARS_MAX])

    def reconfig(self, client: AuditedClient, xid: int, err: int | None) -> None:
        """A change of members has an outcome; None: nobody knows it."""
        outcome = UNKNOWN if err is None else _outcome_of(err)
        self._write(client, xid, "reconfig", CONFIG_PATH, outcome)

    def by_time(self, results: Iterable[Result]) -> None:
        """Sessions, containers and nodes with a TTL were ended, because their time had come."""
        for result in results:
            events = result.events or ()
            over = [each[1] for each in events if each[0] == SESSION_CLOSED]
            if over:
                session = f"0x{over[0]:x}"
                self.log.write(self._node, "", "expireSession", "", ALLOWED, session=session)
                self._gone(session, events)
            else:
                for path in _deleted(events):
                    self.log.write(self._node, "", "delete", path, ALLOWED)

    def _gone(self, session: str, events: Iterable[object]) -> None:
        for path in _deleted(events):
            self.log.write(self._node, "", _EPHEMERAL_GONE, path, ALLOWED, session=session)

    def _write(
        self, client: AuditedClient, xid: int | None, word: str, path: str, outcome: str, claimed: str = ""
    ) -> None:
        session = f"0x{client.session_id:x}" if client.session_id else None
        who = principal_of([*(client.identities or ()), *([["sasl", claimed]] if claimed else ())])
        self.log.write(who, client.stream.address, word, path, outcome, request=xid, session=session)


def _parts(op: int, about: str | list[tuple[int, str]], result: Result | None) -> list[tuple[str, str, str]]:
    """Return (word, path, outcome) of what a command, or each part of a multi, has done."""
    if isinstance(about, str):
        word = _WORDS.get(op)
        if word is None:
            return []
        if result is None:
            return [(word, about, UNKNOWN)]
        return [(word, _path(about, result.value), _outcome_of(result.err))]
    items: list[MultiItem]
    if result is None:
        items = []
    elif isinstance(result.value, list):
        items = result.value
    else:
        items = [(op, result.err, None)] * len(about)
    has_failed = any(err for _, err, _ in items)
    found = []
    for (part, path), item in zip_longest(about, items):
        _, err, made = item or (op, OK, None)
        outcome = FAILED if has_failed and err == OK else _outcome_of(err)
        # A check changes nothing: only that it is refused counts.
        if part in _WORDS and (part != OP_CHECK or err == NO_AUTH):
            found.append((_WORDS[part], _path(path, made), UNKNOWN if result is None else outcome))
    return found


def _path(asked: str, made: object) -> str:
    """Return the path of a write: the one that a create was given, if it was."""
    if isinstance(made, tuple):
        made = made[0]
    return made if isinstance(made, str) else asked


def _deleted(events: Iterable[object]) -> list[str]:
    return [each[1] for each in events if isinstance(each, tuple) and each[0] == EVENT_DELETED]
