"""The numbers of ZooKeeper's client protocol: operations, events, states and reserved xids.

What is done with an operation, operations.py says; what an error code means, `quorum.errors.CODES`.
Source: ZooDefs.OpCode and Watcher.Event of ZooKeeper 3.9.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class OpCode(IntEnum):
    """ZooDefs.OpCode; the negative ones never arrive from a well-behaved client, but closeSession."""

    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


class EventType(IntEnum):
    """Watcher.Event.EventType."""

    NONE = -1
    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


#: Watcher.Event.KeeperState: the only one that a server sends.
SYNC_CONNECTED: Final = 3
#: Reserved xids: a watch event, a ping, an auth packet, a SetWatches of the client library.
XID_NOTIFICATION: Final = -1
XID_PING: Final = -2
XID_AUTH: Final = -4
XID_SET_WATCHES: Final = -8

#: Bytes of a session's password.
PASSWORD_BYTES: Final = 16
