"""What becomes of the machine's reads and writes, as inputs."""

from __future__ import annotations

from typing import cast

import pytest

from controller.core.effects import (
    Check,
    CreateNode,
    DeleteNode,
    ReadChildren,
    ReadNodes,
    SetData,
    Write,
)
from controller.core.inputs import (
    ChildrenRead,
    Done,
    NodesRead,
    ReadFailed,
    Rejected,
    Unknown,
    Unreadable,
    Why,
    Znode,
)
from controller.runtime import carrying
from controller.wire.codes import ErrorCode
from quorum.client import (
    BadVersionError,
    Client,
    ClientError,
    ConnectionLossError,
    MultiFailedError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RequestTooLargeError,
    SessionExpiredError,
    Stat,
    Transaction,
)
from quorum.client.errors import server_error
from quorum.errors import CODE_NUMBERS

STAT = Stat(**{name: number for number, name in enumerate(Stat._fields)})
WRITE = Write(7, (Check("/epoch", 3), SetData("/a", b"1", 2), CreateNode("/b", b""), DeleteNode("/c")))


class ScriptedClient:
    """A client whose next call has an outcome that a test names."""

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome
        self.commands: list[object] = []

    @property
    def as_client(self) -> Client:
        return cast("Client", self)

    async def multi(self, transaction: Transaction) -> object:
        self.commands = list(transaction.commands)
        return self._end()

    async def read_all(self, _paths: object) -> object:
        return self._end()

    async def get_children(self, _path: str) -> object:
        return self._end()

    def _end(self) -> object:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


async def outcome_of(error: ClientError) -> Done | Rejected | Unknown:
    done = await carrying.write(ScriptedClient(error).as_client, WRITE)
    assert done.id == WRITE.id
    return done.outcome


async def test_a_write_is_one_multi() -> None:
    client = ScriptedClient([])
    done = await carrying.write(client.as_client, WRITE)
    assert done.outcome == Done()
    named = [(command[1], command[2]) for command in client.commands]  # type: ignore[index]
    assert named == [("/epoch", 3), ("/a", b"1"), ("/b", b""), ("/c", -1)]


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (BadVersionError(-103, "/a"), Why.BAD_VERSION),
        (NoNodeError(-101, "/a"), Why.NO_NODE),
        (NodeExistsError(-110, "/a"), Why.NODE_EXISTS),
        (NotEmptyError(-111, "/a"), Why.NOT_EMPTY),
        (NoAuthError(-102, "/a"), Why.OTHER),
    ],
)
async def test_a_refused_operation_is_named_and_counted_without_the_fence(
    cause: BadVersionError, why: Why
) -> None:
    found = await outcome_of(MultiFailedError(2, cause))
    assert isinstance(found, Rejected)
    assert (found.failed_index, found.why, found.is_lost_race) == (2, why, why is not Why.OTHER)
    assert found.problem == f"multi: operation 1: {cause.message}"
    assert found.remedy == cause.remedy


async def test_the_fence_is_operation_0_whatever_it_meets() -> None:
    for cause in (BadVersionError(-103, "/epoch"), server_error(CODE_NUMBERS["THROTTLEDOP"], "/epoch")):
        found = await outcome_of(MultiFailedError(0, cause))
        assert isinstance(found, Rejected)
        assert found.failed_index == 0


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLossError("multi", "cut", sent=True),
        ConnectionLossError("multi", "cut", sent=False),
        MultiFailedError(1, server_error(CODE_NUMBERS["THROTTLEDOP"], "/a")),
    ],
)
async def test_what_may_succeed_later_has_an_unknown_outcome(error: ClientError) -> None:
    assert await outcome_of(error) == Unknown(error.message)


async def test_a_write_that_is_too_large_is_refused_as_a_whole() -> None:
    error = RequestTooLargeError("multi", 9, 8)
    found = await outcome_of(error)
    assert isinstance(found, Rejected)
    assert (found.failed_index, found.why, found.error_code) == (-1, Why.OTHER, ErrorCode.INVALID_REQUEST)


async def test_nodes_come_in_order_and_one_that_cannot_be_read_says_why() -> None:
    outcomes = [(b"x", STAT), NoNodeError(-101, "/b"), NoAuthError(-102, "/c")]
    read = await carrying.read_nodes(ScriptedClient(outcomes).as_client, ReadNodes(3, ("/a", "/b", "/c")))
    node = Znode(b"x", STAT.version, STAT.czxid, STAT.mzxid, STAT.ephemeral_owner)
    assert isinstance(read, NodesRead)
    assert read.nodes[:2] == (node, None)
    assert isinstance(read.nodes[2], Unreadable)


async def test_names_are_sorted_and_a_missing_parent_is_no_empty_one() -> None:
    effect = ReadChildren(4, "/a")
    assert await carrying.read_children(ScriptedClient(["b", "a"]).as_client, effect) == ChildrenRead(
        4, ("a", "b")
    )
    assert await carrying.read_children(ScriptedClient([]).as_client, effect) == ChildrenRead(4, ())
    missing = ScriptedClient(NoNodeError(-101, "/a"))
    assert await carrying.read_children(missing.as_client, effect) == ChildrenRead(4, None)


async def test_a_lost_connection_fails_a_read_and_a_lost_session_is_raised() -> None:
    lost = ScriptedClient(ConnectionLossError("read", "cut", sent=True))
    assert isinstance(await carrying.read_nodes(lost.as_client, ReadNodes(1, ("/a",))), ReadFailed)
    assert isinstance(await carrying.read_children(lost.as_client, ReadChildren(1, "/a")), ReadFailed)
    over = ScriptedClient(SessionExpiredError())
    with pytest.raises(SessionExpiredError):
        await carrying.write(over.as_client, WRITE)
    with pytest.raises(SessionExpiredError):
        await carrying.read_nodes(over.as_client, ReadNodes(1, ("/a",)))
