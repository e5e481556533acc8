"""Reads and writes of the controller's machine as requests of a client, and their results as inputs.

A lost connection is a result, too. That the session is over is raised, as is what nobody foresaw.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

from typing import Final

from controller.core import effects, inputs
from controller.wire.error_codes import code_of_error
from quorum.client import (
    BadVersionError,
    Client,
    ClientError,
    ConnectionLossError,
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
    (BadVersionError, inputs.Why.BAD_VERSION),
    (NoNodeError, inputs.Why.NO_NODE),
    (NodeExistsError, inputs.Why.NODE_EXISTS),
    (NotEmptyError, inputs.Why.NOT_EMPTY),
)


async def read_nodes(client: Client, effect: effects.ReadNodes) -> inputs.NodesRead | inputs.ReadFailed:
    """Read nodes, as few requests as their number and sizes allow."""
    try:
        outcomes = await client.read_all(effect.paths)
    except ConnectionLossError as error:
        return inputs.ReadFailed(effect.id, error.message)
    return inputs.NodesRead(effect.id, tuple(map(_node, outcomes)))


async def read_children(
    client: Client, effect: effects.ReadChildren
) -> inputs.ChildrenRead | inputs.ReadFailed:
    """Read the names below a node."""
    try:
        names = await client.get_children(effect.path)
    except ConnectionLossError as error:
        return inputs.ReadFailed(effect.id, error.message)
    except NoNodeError:
        return inputs.ChildrenRead(effect.id, None)
    return inputs.ChildrenRead(effect.id, tuple(sorted(names)))


async def write(client: Client, effect: effects.Write) -> inputs.MultiDone:
    """Run a multi and say what became of it."""
    transaction = Transaction()
    for operation in effect.operations:
        match operation:
            case effects.SetData(path, value, version):
                transaction.set(path, value, version)
            case effects.CreateNode(path, value):
                transaction.create(path, value)
            case effects.Check(path, version):
                transaction.check(path, version)
            case effects.DeleteNode(path, version):
                transaction.delete(path, version)
    try:
        await client.multi(transaction)
    except SESSION_OVER:
        raise
    except ClientError as error:
        return inputs.MultiDone(effect.id, _failure(error))
    return inputs.MultiDone(effect.id, inputs.Done())


def _node(outcome: ReadOutcome) -> inputs.Znode | inputs.Unreadable | None:
    if isinstance(outcome, NoNodeError):
        return None
    if isinstance(outcome, ServerError):
        return inputs.Unreadable(outcome.message)
    data, stat = outcome
    return inputs.Znode(data, stat.version, stat.czxid, stat.mzxid, stat.ephemeral_owner)


def _failure(error: ClientError) -> inputs.Rejected | inputs.Unknown:
    if not isinstance(error, MultiFailedError):
        if error.retriable or not error.definite:
            return inputs.Unknown(error.message)
        return inputs.Rejected(-1, inputs.Why.OTHER, error.message, code_of_error(error), error.remedy)
    if error.index > 0 and (error.retriable or not error.definite):
        return inputs.Unknown(error.message)
    # Whoever reads the message does not know of the fence before the operations.
    shown = MultiFailedError(max(0, error.index - 1), error.cause)
    why = next((why for kind, why in _WHYS if isinstance(error.cause, kind)), inputs.Why.OTHER)
    return inputs.Rejected(error.index, why, shown.message, code_of_error(shown), shown.remedy)
