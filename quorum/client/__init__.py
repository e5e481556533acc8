"""The asyncio client of the quorum, which works unchanged against ZooKeeper.

`Client` is the door: one session, its operations, its watches. `Transaction` collects the operations of a
multi, `WatchStream` turns watch events into an async iterator, and every failure is a ClientError that says
whether it is definite.

    async with Client("127.0.0.1:2181,127.0.0.1:2182") as client:
        await client.create("/a", b"1")
        data, stat = await client.get("/a")
"""

from quorum.client.client import Client
from quorum.client.errors import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    ClientClosedError,
    ClientError,
    ClosedToWritesError,
    ConnectionLossError,
    InvalidAclError,
    InvalidArgumentError,
    MultiFailedError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NoParentError,
    NoServerError,
    NotEmptyError,
    NoWatchError,
    RequestTooLargeError,
    SaslRefusedError,
    SaslRequiredError,
    ServerError,
    SessionExpiredError,
    SessionMovedError,
    WatchOverflowError,
)
from quorum.client.lookups import AccessEntry, ReadOutcome
from quorum.client.requests import ANY_VERSION, CreateMode, OperationResult, Transaction
from quorum.client.state import ClientState
from quorum.client.token import SessionToken
from quorum.client.watches import WatchCallback, WatchEvent, WatchStream, WatchType
from quorum.wire.jute import Stat
from quorum.wire.protocol import EventType

__all__ = [
    "ANY_VERSION",
    "AccessEntry",
    "AuthFailedError",
    "BadArgumentsError",
    "BadVersionError",
    "Client",
    "ClientClosedError",
    "ClientError",
    "ClientState",
    "ClosedToWritesError",
    "ConnectionLossError",
    "CreateMode",
    "EventType",
    "InvalidAclError",
    "InvalidArgumentError",
    "MultiFailedError",
    "NoAuthError",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NoParentError",
    "NoServerError",
    "NoWatchError",
    "NodeExistsError",
    "NotEmptyError",
    "OperationResult",
    "ReadOutcome",
    "RequestTooLargeError",
    "SaslRefusedError",
    "SaslRequiredError",
    "ServerError",
    "SessionExpiredError",
    "SessionMovedError",
    "SessionToken",
    "Stat",
    "Transaction",
    "WatchCallback",
    "WatchEvent",
    "WatchOverflowError",
    "WatchStream",
    "WatchType",
]
