"""Numbers of the ZooKeeper protocol that the state machine decides with: errors, opcodes, flags, events.

The error codes are KeeperException's, the opcodes ZooDefs.OpCode's, the event types
Watcher.Event.EventType's; negative event types and the opcode ATTACH are Quorate's own and never leave a
node. Plain ints, not enums: they are compared once per command on the hot path. This module decides nothing
and holds no state.

Source: ZooKeeper 3.9 KeeperException.Code, ZooDefs.OpCode, ZooDefs.Perms, CreateMode.
"""

from typing import Final

# Errors
OK: Final = 0
RUNTIME_INCONSISTENCY: Final = -2
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
BAD_ARGUMENTS: Final = -8
NEW_CONFIG_NO_QUORUM: Final = -13
RECONFIG_IN_PROGRESS: Final = -14
NO_NODE: Final = -101
NO_AUTH: Final = -102
BAD_VERSION: Final = -103
NO_CHILDREN_FOR_EPHEMERALS: Final = -108
NODE_EXISTS: Final = -110
NOT_EMPTY: Final = -111
SESSION_EXPIRED: Final = -112
INVALID_ACL: Final = -114
AUTH_FAILED: Final = -115
SESSION_MOVED: Final = -118
NOT_READ_ONLY: Final = -119
NO_WATCHER: Final = -121
SASL_REQUIRED: Final = -124
QUOTA_EXCEEDED: Final = -125

# Operations of a command; OP_ERROR is the type of a result in a failed multi
OP_ERROR: Final = -1
OP_CREATE: Final = 1
OP_DELETE: Final = 2
OP_SET_DATA: Final = 5
OP_SET_ACL: Final = 7
OP_SYNC: Final = 9
OP_CHECK: Final = 13
OP_MULTI: Final = 14
OP_CREATE2: Final = 15
OP_CREATE_CONTAINER: Final = 19
OP_CREATE_TTL: Final = 21
OP_CREATE_SESSION: Final = -10
OP_CLOSE_SESSION: Final = -11
#: resume a session on the connection that the run names; Quorate's own
OP_ATTACH: Final = -100

# Flags of a create: EPHEMERAL and SEQUENTIAL combine
FLAG_EPHEMERAL: Final = 1
FLAG_SEQUENTIAL: Final = 2
#: the flags of a container; whether the node is one is decided by the operation, and then they may be others
FLAG_CONTAINER: Final = 4
#: the flags of a node with a TTL, and of one with a suffix besides
FLAG_TTL: Final = 5
FLAG_TTL_SEQUENTIAL: Final = 6
#: the largest TTL that fits into ZooKeeper's ephemeralOwner, in milliseconds
TTL_MAX_MS: Final = 2**40 - 1

# Permissions of an ACL entry
PERM_READ: Final = 1
PERM_WRITE: Final = 2
PERM_CREATE: Final = 4
PERM_DELETE: Final = 8
PERM_ADMIN: Final = 16
PERM_ALL: Final = 31

# Events
EVENT_CREATED: Final = 1
EVENT_DELETED: Final = 2
EVENT_DATA_CHANGED: Final = 3
EVENT_CHILDREN_CHANGED: Final = 4
#: notice (SESSION_CLOSED, session_id)
SESSION_CLOSED: Final = -1
#: notice (SESSION_ATTACHED, session_id, node_id, nonce)
SESSION_ATTACHED: Final = -2

#: a version in a request that matches any
ANY_VERSION: Final = -1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1
