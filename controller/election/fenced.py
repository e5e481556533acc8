"""The controller's writes, each fenced by the controller epoch.

Every multi begins with a check of /controller_epoch at the version of the mandate, so a controller that has
been replaced changes nothing. Soft state only.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; docs/internals/requirements.md, [2.4],
[3.3].
"""

from __future__ import annotations

from controller.election.plans import Mandate
from quorum.client import Client, MultiFailedError, OperationResult, Transaction
from quorum.metadata import paths
from quorum.metadata.errors import ControllerFencedError
from quorum.metadata.numbers import ControllerEpoch


async def fenced_multi(
    client: Client, mandate: Mandate[ControllerEpoch], transaction: Transaction
) -> list[OperationResult]:
    """Run a transaction behind the fence; indexes of results and failures count without the check."""
    fenced = Transaction()
    fenced.check(paths.CONTROLLER_EPOCH, mandate.epoch_version)
    fenced.extend(transaction)
    try:
        results = await client.multi(fenced)
    except MultiFailedError as error:
        if error.index == 0:
            raise ControllerFencedError(mandate.epoch) from error
        raise MultiFailedError(error.index - 1, error.cause) from error
    return results[1:]
