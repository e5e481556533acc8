"""What elections and registrations say when they give up: unknown is never told as a refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from controller.election.plans import CONTROLLER_OFFICE
from controller.election.store import ROUNDS_MAX, elect, register_broker, resign
from quorum.client import (
    BadVersionError,
    Client,
    ConnectionLossError,
    MultiFailedError,
    NoNodeError,
    OperationResult,
    Stat,
    Transaction,
)
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError
from quorum.metadata.records import BrokerRecord
from tests.support.metadata_records import mandate_of
from tests.support.trust import TRUST

EPOCH = Stat(1, 1, 0, 0, 3, 0, 0, 0, 1, 0, 1)
RECORD = BrokerRecord("h", 1, (), {}, 0, incarnation="aa")

UNKNOWN = ConnectionLossError("multi", "cut", sent=True)
UNSENT = ConnectionLossError("multi", "cut", sent=False)
CONFLICT = MultiFailedError(0, BadVersionError(-103, "/x"))
GONE = MultiFailedError(1, NoNodeError(-101, "/controller"))


class LaggingServer:
    """Reads show an old state for ever; each multi fails with the next of some errors."""

    session_id = 7

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors

    async def get(self, path: str) -> tuple[bytes, Stat]:
        if path == paths.CONTROLLER_EPOCH:
            return b"3", EPOCH
        raise NoNodeError(-101, path)

    async def multi(self, _transaction: Transaction) -> list[OperationResult]:
        raise self.errors.pop(0)

    async def sync(self, path: str) -> str:
        return path


Attempt = Callable[[Client], Awaitable[object]]
ATTEMPTS: dict[str, Attempt] = {
    "election": lambda client: elect(client, CONTROLLER_OFFICE, 1, 0, TRUST),
    "registration": lambda client: register_broker(client, 1, RECORD, TRUST),
}


async def outcome(attempt: Attempt, errors: list[Exception]) -> QuorateError:
    server = LaggingServer(list(errors))
    with pytest.raises(QuorateError) as caught:
        await attempt(cast("Client", server))
    assert server.errors == []
    return caught.value


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
@pytest.mark.parametrize(
    ("errors", "wanted"),
    [
        ([UNKNOWN] * ROUNDS_MAX, UNKNOWN),
        ([CONFLICT] * (ROUNDS_MAX - 1) + [UNKNOWN], UNKNOWN),
        # The last round changed nothing; the one before it may have won, which a server that lags hides.
        ([CONFLICT] * (ROUNDS_MAX - 2) + [UNKNOWN, CONFLICT], UNKNOWN),
        ([UNKNOWN] + [UNSENT] * (ROUNDS_MAX - 1), UNKNOWN),
        ([UNSENT] * ROUNDS_MAX, UNSENT),
    ],
    ids=["always lost", "lost at last", "lost before a conflict", "lost, then never sent", "never sent"],
)
async def test_an_attempt_that_may_have_succeeded_is_unknown(
    attempt: Attempt, errors: list[Exception], wanted: ConnectionLossError
) -> None:
    error = await outcome(attempt, errors)
    assert error is wanted


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
async def test_an_attempt_that_always_lost_the_race_had_no_effect(attempt: Attempt) -> None:
    error = await outcome(attempt, [CONFLICT] * ROUNDS_MAX)
    assert isinstance(error, ContendedError)
    assert error.definite


@pytest.mark.parametrize("unknown_first", [True, False])
async def test_resigning_tells_whose_deletion_it_may_have_been(unknown_first: bool) -> None:
    async def attempt(client: Client) -> bool:
        return await resign(client, CONTROLLER_OFFICE, mandate_of(1, 4, 4))

    first: Exception = UNKNOWN if unknown_first else UNSENT
    error = await outcome(attempt, [first] + [UNSENT] * (ROUNDS_MAX - 1))
    assert error is first
    assert await attempt(cast("Client", LaggingServer([first, GONE]))) is unknown_first
