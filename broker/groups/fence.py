"""Multis in the name of one coordinator, which take effect once or not at all, also where a reply is lost.

Every multi begins with a check of /consumers/coordinator_epoch at the version of the mandate, so a former
coordinator changes nothing. Decides nothing about groups. Soft state: none.
Source: control-plane design, "Coordinator"; seed [4.x].
"""

from __future__ import annotations

from broker.groups.errors import CoordinatorFencedError, GroupChangedError
from controller.election.plans import Mandate
from quorum.client import Client, ConnectionLossError, MultiFailedError, Transaction
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.metadata.reading import read_node


class Fence:
    """What every write of a coordinator passes."""

    def __init__(self, client: Client, mandate: Mandate[CoordinatorEpoch], rounds_max: int) -> None:
        """Write through a client, as long as the mandate holds; each write at most so often."""
        self._client = client
        self.mandate = mandate
        self.rounds_max = rounds_max

    def transaction(self) -> Transaction:
        """Begin a multi with the check of the mandate, its operation 0."""
        return Transaction().check(paths.COORDINATOR_EPOCH, self.mandate.epoch_version)

    async def carry_out(self, group_id: str, transaction: Transaction, witness: str, *, made: bool) -> None:
        """Make or delete nodes of a group in one multi; one of them says whether it took effect.

        Args:
            group_id: whose nodes.
            transaction: begun by `transaction`.
            witness: a node that is there afterwards (made), or is not, and was not, or was, before.
            made: which of both.

        Raises:
            CoordinatorFencedError: another coordinator has been elected; definite.
            GroupChangedError: somebody else has written the group's nodes; definite.
            ContendedError: the outcome stayed unknown in every round.
            ClientError: the session is over, or a request is too large.
        """
        for _ in range(self.rounds_max):
            try:
                await self._client.multi(transaction)
            except ConnectionLossError:
                if await self._is(witness, made):
                    return
            except MultiFailedError as error:
                if error.index == 0:
                    raise CoordinatorFencedError(self.mandate.epoch) from error
                if await self._is(witness, made):
                    return
                raise GroupChangedError(group_id, error.cause.message) from error
            else:
                return
        raise ContendedError(f"a write below group {group_id!r}", self.rounds_max)

    async def _is(self, path: str, made: bool) -> bool:
        try:
            await self._client.sync(paths.GROUPS)
            return (await read_node(self._client, path) is not None) is made
        except ConnectionLossError:
            return False
