"""What a client operation can fail with, each definite or indefinite.

An error that a server replied says what the table of codes says about it: definite means that the operation
had no effect. A lost connection is indefinite for every request that may have reached a server, and definite
for one that never left. The client never invents a failure and never repeats a write by itself: an unknown
outcome is the caller's to look up.
Source: KeeperException.Code (ZooKeeper 3.9).
"""

from __future__ import annotations

from typing import ClassVar, Final

from quorum.errors import Fault, QuorateError, UnreachableError, describe_code


class ClientError(QuorateError):
    """The base of all errors of client operations."""

    fault = Fault.CLIENT


class ServerError(ClientError):
    """An error that a server replied.

    Attributes:
        server_code: ZooKeeper's number.
        path: the path of the operation, "" where it had none.
    """

    #: What happened, in words; "" where only the code's name is known.
    story: ClassVar[str] = ""

    def __init__(self, server_code: int, path: str, remedy: str = "") -> None:
        row = describe_code(server_code)
        place = f"{path}: " if path else ""
        super().__init__(
            f"{place}{self.story or f'the server refused the operation with {row.name}'}", remedy
        )
        self.server_code = server_code
        self.path = path
        self.definite = row.definite
        self.retriable = row.retriable


class NoNodeError(ServerError):
    """There is no such node."""

    code = -101
    story = "there is no such node"


class NoParentError(NoNodeError):
    """The parent of the node to create does not exist; the path is the one of the node."""

    story = "the parent of this node does not exist"


class NoAuthError(ServerError):
    """The access list of the node does not allow the operation."""

    code = -102
    story = "the access list of the node does not allow this"

    def __init__(self, server_code: int = -102, path: str = "", remedy: str = "") -> None:
        known = "prove an identity that the list names; the brokers': `quorate shell --peer-secret FILE`"
        super().__init__(server_code, path, remedy or known)


class BadVersionError(ServerError):
    """The node has another version than the one that was expected."""

    code = -103
    story = "the node has another version than expected"


class NoChildrenForEphemeralsError(ServerError):
    """The parent is ephemeral and can have no children."""

    code = -108
    story = "the parent is ephemeral and can have no children"


class NodeExistsError(ServerError):
    """The node exists already."""

    code = -110
    story = "the node exists already"


class NotEmptyError(ServerError):
    """The node has children and cannot be deleted."""

    code = -111
    story = "the node has children"


class SessionExpiredError(ServerError):
    """The session is over; the operation was refused or never sent, so it had no effect."""

    code = -112

    def __init__(self, server_code: int = -112, path: str = "", remedy: str = "") -> None:
        super().__init__(server_code, path, remedy or "make a new client: a lost session never comes back")

    story = "the session has expired"


class InvalidAclError(ServerError):
    """The access list is empty or malformed."""

    code = -114
    story = "the access list is empty or malformed"


class AuthFailedError(ServerError):
    """The server does not accept the credentials.

    They are not sent again, unless a server accepted them before: then the connection is ended and the next
    one is offered them.
    """

    code = -115
    story = "the server does not accept the credentials"

    def __init__(self, server_code: int = -115, path: str = "", scheme: str = "") -> None:
        super().__init__(server_code, path, f"check the credentials of the scheme {scheme}" if scheme else "")


class ClosedToWritesError(ServerError):
    """The server takes no writes: an import is under way, or it serves reads alone."""

    code = -119
    story = "no client may write now: an import is under way"

    def __init__(self, server_code: int = -119, path: str = "", remedy: str = "") -> None:
        known = "cut it over (`quorate import … --cutover`), or write to its source until then"
        super().__init__(server_code, path, remedy or known)


class SaslRefusedError(AuthFailedError):
    """A server does not believe a name and its password; another one may, or this one in a minute.

    A session that was served before lives on, and the next server is offered the same.
    """

    def __init__(self, server_code: int, name: str) -> None:
        super().__init__(server_code)
        self.message = f"the server does not believe SASL of {name!r}, with {describe_code(server_code).name}"
        self.remedy = "see that the nodes' security.sasl_users_file has a line of this name and password"
        self.retriable = True


class SaslRequiredError(ServerError):
    """The server serves nobody who has not proven what it asks for; it ends the connection."""

    code = -124
    story = "the server serves nobody who has not proven who it is"

    def __init__(self, server_code: int = -124, path: str = "", remedy: str = "") -> None:
        known = (
            "prove a name (--sasl NAME --password-file FILE; a broker's quorum.sasl_username), or show a "
            "certificate where x509 counts (--ca, --cert and --key; a broker's [tls.quorum])"
        )
        super().__init__(server_code, path, remedy or known)


class NoWatchError(ServerError):
    """This client watches nothing of the kind on the path."""

    code = -121
    story = "this client has no such watch there"


class SessionMovedError(ServerError):
    """The session is served through another connection by now; the operation had no effect."""

    code = -118
    story = "the session has moved to another connection"


class BadArgumentsError(ServerError):
    """The server refused an argument, most often the path."""

    code = -8
    story = "the server refused an argument, most often the path"


_CLASSES: Final[dict[int, type[ServerError]]] = {
    -8: BadArgumentsError,
    -101: NoNodeError,
    -102: NoAuthError,
    -103: BadVersionError,
    -108: NoChildrenForEphemeralsError,
    -110: NodeExistsError,
    -111: NotEmptyError,
    -112: SessionExpiredError,
    -114: InvalidAclError,
    -115: AuthFailedError,
    -118: SessionMovedError,
    -119: ClosedToWritesError,
    -121: NoWatchError,
    -124: SaslRequiredError,
}


def server_error(code: int, path: str, *, creating: bool = False) -> ServerError:
    """Make the typed error for a code that a server replied for a path, which may have been one to create."""
    if creating and code == NoNodeError.code:
        return NoParentError(code, path)
    return _CLASSES.get(code, ServerError)(code, path)


class MultiFailedError(ClientError):
    """One operation of a multi failed, so none of them had an effect.

    Attributes:
        index: which operation failed, from 0.
        cause: its error.
    """

    def __init__(self, index: int, cause: ServerError) -> None:
        super().__init__(f"multi: operation {index}: {cause.message}", cause.remedy)
        self.index = index
        self.cause = cause
        self.definite = cause.definite
        self.retriable = cause.retriable


class ConnectionLossError(ClientError):
    """The connection broke before the reply came: the outcome is unknown, unless the request never left."""

    code = -4
    fault = Fault.NETWORK
    retriable = True

    def __init__(self, operation: str, reason: str, *, sent: bool) -> None:
        outcome = "its outcome is unknown" if sent else "it was never sent"
        super().__init__(
            f"{operation}: {outcome}: {reason}", "read the state again before repeating it" if sent else ""
        )
        self.definite = not sent


class ClientClosedError(ClientError):
    """The client was closed before the operation; it was never sent."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(
            f"the client is closed: {reason}" if reason else "the client is closed", "make a new client"
        )


class InvalidArgumentError(ClientError, ValueError):
    """An argument that no request can carry; nothing was sent."""

    def __init__(self, operation: str, problem: str, remedy: str = "correct the argument") -> None:
        super().__init__(f"{operation}: {problem}", remedy)


class RequestTooLargeError(ClientError):
    """A request over the size that servers accept; it was never sent."""

    def __init__(self, operation: str, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(
            f"{operation}: the request has {size_bytes} bytes, at most {size_bytes_max} are allowed",
            "write less at once, or raise limits.frame_bytes_max of the nodes (ZooKeeper's jute.maxbuffer) "
            "and request_bytes_max of the client",
        )


class NoServerError(UnreachableError):
    """No server gave the client a session within its patience."""


def remedy_for(failure: str, *, by_tls: bool) -> str:
    """Return what to do where no server gives a session.

    Args:
        failure: how the last attempt ended. by_tls: whether it was made by TLS.
    """
    if "CERTIFICATE_VERIFY_FAILED" in failure:
        return (
            "name the authorities that signed the servers' certificates (--ca; of a broker "
            "tls.quorum.authorities_file), and dial a name that those have"
        )
    if by_tls and "CERTIFICATE_REQUIRED" in failure:
        return "show a certificate (--cert and --key; of a broker [tls.quorum])"
    remedy = "check that the servers run, have a majority, and listen at these addresses"
    was_cut = any(
        each in failure for each in ("reset by peer", "ConnectionResetError", "closed the connection")
    )
    if by_tls and ("[SSL" in failure or was_cut):
        return f"{remedy}; a plain port is dialled without --ca (of a broker quorum.ssl = false)"
    if was_cut:
        return f"{remedy}; a port that speaks TLS needs --ca (of a broker quorum.ssl = true)"
    return remedy


class WatchOverflowError(ClientError):
    """A watch stream that nobody read had to give up; no event was skipped silently."""

    retriable = True

    def __init__(self, events_max: int) -> None:
        super().__init__(
            f"more than {events_max} watch events waited to be read", "read the state again, then watch again"
        )
