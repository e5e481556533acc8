"""The hierarchy of errors, and the one table of ZooKeeper's error codes.

Every error says four things: its code (ZooKeeper's own number, where the protocol has one), whose fault it
is, whether it is *definite* (the operation has had no effect and never will) and whether it is *retriable*
(the same call may succeed later, on this node or on another). A timeout or a lost connection is always
indefinite. Errors that a person sees also name a remedy. Foreign exceptions are mapped to this hierarchy at
the edge, once.

Source: KeeperException.Code of ZooKeeper 3.9.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import ClassVar, NamedTuple


class Fault(Enum):
    """Who has to change something so that the error does not come back."""

    OPERATOR = "operator"
    CLIENT = "client"
    PEER = "peer"
    NETWORK = "network"
    NODE = "node"


class CodeRow(NamedTuple):
    """One row of the table of ZooKeeper's codes.

    Attributes:
        code: the number on the wire (``err`` of a reply header).
        name: KeeperException.Code's name.
        definite: true if a request that was answered with it has had no effect and never will.
        retriable: true if the same request may succeed later, on this server or another, in this session or a
            new one.
        fault: who has to change something.
    """

    code: int
    name: str
    definite: bool
    retriable: bool
    fault: Fault


_ROWS = (
    CodeRow(0, "OK", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-1, "SYSTEMERROR", definite=False, retriable=False, fault=Fault.NODE),
    CodeRow(-2, "RUNTIMEINCONSISTENCY", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-3, "DATAINCONSISTENCY", definite=False, retriable=False, fault=Fault.NODE),
    CodeRow(-4, "CONNECTIONLOSS", definite=False, retriable=True, fault=Fault.NETWORK),
    CodeRow(-5, "MARSHALLINGERROR", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-6, "UNIMPLEMENTED", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-7, "OPERATIONTIMEOUT", definite=False, retriable=True, fault=Fault.NETWORK),
    CodeRow(-8, "BADARGUMENTS", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-12, "UNKNOWNSESSION", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-13, "NEWCONFIGNOQUORUM", definite=True, retriable=True, fault=Fault.OPERATOR),
    CodeRow(-14, "RECONFIGINPROGRESS", definite=True, retriable=True, fault=Fault.OPERATOR),
    CodeRow(-100, "APIERROR", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-101, "NONODE", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-102, "NOAUTH", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-103, "BADVERSION", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-108, "NOCHILDRENFOREPHEMERALS", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-110, "NODEEXISTS", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-111, "NOTEMPTY", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-112, "SESSIONEXPIRED", definite=True, retriable=True, fault=Fault.CLIENT),
    CodeRow(-113, "INVALIDCALLBACK", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-114, "INVALIDACL", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-115, "AUTHFAILED", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-118, "SESSIONMOVED", definite=True, retriable=True, fault=Fault.CLIENT),
    CodeRow(-119, "NOTREADONLY", definite=True, retriable=True, fault=Fault.NODE),
    CodeRow(-120, "EPHEMERALONLOCALSESSION", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-121, "NOWATCHER", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-122, "REQUESTTIMEOUT", definite=False, retriable=True, fault=Fault.NETWORK),
    CodeRow(-123, "RECONFIGDISABLED", definite=True, retriable=False, fault=Fault.OPERATOR),
    CodeRow(-124, "SESSIONCLOSEDREQUIRESASLAUTH", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-125, "QUOTAEXCEEDED", definite=True, retriable=False, fault=Fault.CLIENT),
    CodeRow(-127, "THROTTLEDOP", definite=True, retriable=True, fault=Fault.CLIENT),
)

#: ZooKeeper's codes by number: the only place that says what a code means for a caller.
CODES: dict[int, CodeRow] = {row.code: row for row in _ROWS}
#: {name: number}
CODE_NUMBERS: dict[str, int] = {row.name: row.code for row in _ROWS}


def describe_code(code: int) -> CodeRow:
    """Look a code up, also one that this version does not know.

    Args:
        code: ``err`` of a reply header.

    Returns:
        Its row; an unknown code counts as indefinite and not retriable, which is the careful reading.
    """
    return CODES.get(code) or CodeRow(code, f"CODE{code}", definite=False, retriable=False, fault=Fault.NODE)


class QuorateError(Exception):
    """The base of every error that Quorate raises on purpose.

    Attributes:
        message: one sentence that names the thing and its value.
        remedy: what to do about it, or "" where the caller decides.
        code: ZooKeeper's number, or None where the protocol has none.
        fault: who has to change something.
        definite: true if the operation has had no effect and never will.
        retriable: true if the same call may succeed later.
    """

    code: ClassVar[int | None] = None
    fault: ClassVar[Fault] = Fault.NODE
    definite: bool = True
    retriable: bool = False

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ConfigProblem(NamedTuple):
    """One thing that is wrong with a configuration: its place, its value, why that is wrong, and the
    remedy."""

    field: str
    value: str
    problem: str
    remedy: str


class ConfigError(QuorateError):
    """A configuration that a node refuses to start with; it names every problem at once.

    Attributes:
        problems: at least one.
    """

    fault = Fault.OPERATOR

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self._set((ConfigProblem(field, shown(value), problem, remedy),))

    def _set(self, problems: tuple[ConfigProblem, ...]) -> None:
        self.problems = problems
        super().__init__(
            "; ".join(f"{row.field} = {row.value}: {row.problem}" for row in problems),
            "; ".join(dict.fromkeys(row.remedy for row in problems)),
        )

    @classmethod
    def of(cls, problems: list[ConfigProblem]) -> ConfigError:
        """Join several problems to one error, in the order in which they were found."""
        error = cls.__new__(cls)
        error._set(tuple(problems))
        return error

    @property
    def field(self) -> str:
        """The section and key of the first problem."""
        return self.problems[0].field


class UsageError(QuorateError):
    """A command line that cannot be carried out as given (exit code 2)."""

    fault = Fault.OPERATOR


class AddressInUseError(QuorateError):
    """An address that this process needs is taken by another one."""

    fault = Fault.OPERATOR


class DataDirError(QuorateError):
    """A data directory that a node refuses: empty, of another node or cluster, in use, or not writable."""

    fault = Fault.OPERATOR


#: What an operating system says of a disk without room, or of a user without quota.
FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
#: What it says when this process, or the whole machine, has too many files open: no disk is at fault.
NO_FILES_ERRNOS = (errno.EMFILE, errno.ENFILE)
#: What passes without a repair: the same may succeed later.
PASSING_ERRNOS = FULL_DISK_ERRNOS + NO_FILES_ERRNOS


def refused_by_disk(message: str, remedy: str, error: BaseException) -> DataDirError:
    """Return the error of a data directory that the disk refused.

    Where this user may not use the file, the remedy says that instead.
    """
    if isinstance(error, PermissionError):
        remedy = "start the node as the user who may use that, or change its owner or mode"
    return DataDirError(message, remedy)


def remedy_for_os(error: OSError) -> str:
    """Say what a person can do about an error of the operating system."""
    if error.errno in FULL_DISK_ERRNOS:
        return "free space on that disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "name a place that this user may read and write, or change its owner or mode"
    if error.errno in NO_FILES_ERRNOS:
        return "allow more open files (ulimit -n)"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        return "correct the path, or put back what belongs there"
    return "look at that file and its disk (the system's log may say more), and try again"


def told_by_os(error: OSError, doing: str) -> str:
    """Say what the operating system refused: the file if it names one, else what was being done, and why."""
    return f"{error.filename or doing}: {error.strerror or str(error) or type(error).__name__}"


class DataDamagedError(DataDirError):
    """A journal or snapshot file that no crash can explain. The node refuses to start rather than guess.

    Attributes:
        path: the file.
        offset: the first byte that cannot be right, counted from the file's start.
    """

    fault = Fault.NODE

    def __init__(self, path: str, offset: int, problem: str, remedy: str) -> None:
        super().__init__(f"{path} is damaged at byte {offset}: {problem}", remedy)
        self.path = path
        self.offset = offset


class ProtocolError(QuorateError):
    """Bytes from outside that do not follow the protocol. The connection they came on is closed."""

    fault = Fault.PEER


class NotLeaderError(QuorateError):
    """A proposal that reached a node which does not lead; it was not appended.

    Attributes:
        leader_id: the leader that this node knows of, or None.
    """

    retriable = True

    def __init__(self, leader_id: int | None = None) -> None:
        known = "no leader is known" if leader_id is None else f"node {leader_id} leads"
        super().__init__(f"this node is not the leader; {known}")
        self.leader_id = leader_id


class ProposalRefusedError(QuorateError):
    """A proposal that this leader takes in no term, for its size or kind; it was not appended."""

    fault = Fault.OPERATOR


class ChangeRefusedError(QuorateError):
    """A change of members or leadership that the leader refuses as things are; nothing changed."""

    fault = Fault.OPERATOR


class ImportRefusedError(QuorateError):
    """A step of an import that does not fit the state of the target."""

    fault = Fault.OPERATOR


class StaleStepError(ImportRefusedError):
    """A step of an import that came after a later one; it did nothing."""

    code = -2


class UnknownMemberError(ChangeRefusedError):
    """A change that names a node which is not a member; nothing changed."""


class StaleConfigurationError(ChangeRefusedError):
    """A change that was asked for on top of another configuration than the present one; nothing changed."""

    code = -103


class ChangeBusyError(ChangeRefusedError):
    """A change that cannot be made now; nothing changed, and the same request may succeed in a moment."""

    code = -14
    retriable = True


class NoLeaderError(QuorateError):
    """A request that could be handed to no leader; nothing changed."""

    fault = Fault.NETWORK
    retriable = True


class OutcomeUnknownError(QuorateError):
    """A request that may or may not have had, or may still have, its effect."""

    fault = Fault.NETWORK
    definite = False


class SnapshotNotTakenError(QuorateError):
    """A snapshot that somebody asked for and that is not taken; what was written of it does not count."""

    retriable = True


class UnreachableError(QuorateError):
    """A server that could not be asked at all, or did not answer in time: nothing is known about the
    outcome."""

    fault = Fault.NETWORK
    definite = False
    retriable = True


class NodeStoppedError(QuorateError):
    """A node that stopped itself because going on could break a promise; the message is its story."""

    definite = False

    @classmethod
    def of(cls, node_id: int, failure: BaseException) -> NodeStoppedError:
        """Tell of a node's failure; one that is not a QuorateError is named by its kind as well."""
        if isinstance(failure, QuorateError):
            return cls(f"node {node_id} stopped itself: {failure.message}", failure.remedy)
        story = f"node {node_id} stopped itself: {type(failure).__name__}: {failure}"
        return cls(story, "keep its log and its data directory for a report; the other nodes go on")

    @classmethod
    def during(cls, what: str, failure: BaseException) -> NodeStoppedError:
        """Tell what could not be done; the remedy is the failure's own, where it has one."""
        if isinstance(failure, QuorateError) and failure.remedy:
            return cls(f"{what}: {failure.message}", failure.remedy)
        remedy = "the other members go on; keep the data directory and report this with the log"
        return cls(f"{what}: {failure!r}", remedy)


def shown(value: object) -> str:
    """Print a value for an error message: one line, bounded in length."""
    return _shortened(repr(value))


def printable(text: str, *, kept: str = "") -> str:
    """Return a text from outside so that nothing in it acts on a terminal.

    Args:
        text: any; what str.isprintable() says no to (control characters, line ends, marks of direction, lone
            surrogates, blanks that are no space) becomes an escape, as \\x1b.
        kept: characters that stay all the same.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in kept or each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def quoted(text: str) -> str:
    """Print a text from outside in a sentence: one line, bounded in length, without quotes around it."""
    return printable(_shortened(text))


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"


#: How much of a refused value an error message repeats.
VALUE_CHARS_MAX = 200
