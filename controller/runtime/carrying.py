"""Reads and writes of the controller's machine as requests of a client, and their results as inputs.

A lost connection is a result, too. That the session is over is raised, as is what nobody foresaw.
Source: issue "Make the control plane steppable"; control-plane design, "Fencing".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.core.effects import (
    Check,
    CreateNode,
    DeleteNode,
    ReadChildren,
    ReadNodes,
    RoleEntry,
    SetData,
    Write,
)
from controller.core.inputs import (
    ChildrenRead,
    Done,
    MultiDone,
    NodesRead,
    ReadFailed,
    Rejected,
    Unknown,
    Unreadable,
    Why,
    Znode,
)
from controller.wire.error_codes import code_of_error
from quorum.client import (
    BadVersionError,
    Client,
    ClientError,
    ConnectionLossError,
    CreateMode,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ReadOutcome,
    ServerError,
    Transaction,
)
from quorum.metadata.errors import SESSION_OVER

_WHYS: Final = (
    (BadVersionError, Why.BAD_VERSION),
    (NoNodeError, Why.NO_NODE),
    (NodeExistsError, Why.NODE_EXISTS),
    (NotEmptyError, Why.NOT_EMPTY),
)


async def read_nodes(client: Client, effect: ReadNodes) -> NodesRead | ReadFailed:
    """Read nodes, as few requests as their number and sizes allow."""
    try:
        outcomes = await client.read_all(effect.paths)
    except ConnectionLossError as error:
        return ReadFailed(effect.id, error.message)
    return NodesRead(effect.id, tuple(map(_node, outcomes)))


async def read_children(client: Client, effect: ReadChildren) -> ChildrenRead | ReadFailed:
    """Read the names below a node."""
    try:
        names = await client.get_children(effect.path)
    except ConnectionLossError as error:
        return ReadFailed(effect.id, error.message)
    except NoNodeError:
        return ChildrenRead(effect.id, None)
    return ChildrenRead(effect.id, tuple(sorted(names)))


async def write(
    client: Client, effect: Write, node_of: Callable[[RoleEntry], tuple[str, bytes]] | None = None
) -> MultiDone:
    """Run a multi and say what became of it.

    Args:
        client: whose session it is.
        effect: the multi.
        node_of: makes the sequential node of an entry that goes with it: (path without number, value);
            None: it has no entries.
    """
    transaction = Transaction()
    for operation in effect.operations:
        match operation:
            case SetData(path, value, version):
                transaction.set(path, value, version)
            case CreateNode(path, value):
                transaction.create(path, value)
            case Check(path, version):
                transaction.check(path, version)
            case DeleteNode(path, version):
                transaction.delete(path, version)
    for entry in effect.entries:
        assert node_of is not None, "the write has no entries"
        transaction.create(*node_of(entry), CreateMode.PERSISTENT_SEQUENTIAL)
    try:
        await client.multi(transaction)
    except SESSION_OVER:
        raise
    except ClientError as error:
        return MultiDone(effect.id, _failure(error))
    return MultiDone(effect.id, Done())


def _node(outcome: ReadOutcome) -> Znode | Unreadable | None:
    if isinstance(outcome, NoNodeError):
        return None
    if isinstance(outcome, ServerError):
        return Unreadable(outcome.message)
    data, stat = outcome
    return Znode(data, stat.version, stat.czxid, stat.mzxid, stat.ephemeral_owner)


def _failure(error: ClientError) -> Rejected | Unknown:
    if not isinstance(error, MultiFailedError):
        if error.retriable or not error.definite:
            return Unknown(error.message)
        return Rejected(-1, Why.OTHER, error.message, code_of_error(error), error.remedy)
    if error.index > 0 and (error.retriable or not error.definite):
        return Unknown(error.message)
    # Whoever reads the message does not know of the fence before the operations.
    shown = MultiFailedError(max(0, error.index - 1), error.cause)
    why = next((why for kind, why in _WHYS if isinstance(error.cause, kind)), Why.OTHER)
    return Rejected(error.index, why, shown.message, code_of_error(shown), shown.remedy)
