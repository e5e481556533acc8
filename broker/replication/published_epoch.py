"""Whether a controller epoch was published: a broker asks the quorum before it believes a larger one.

Asked once per election, since an epoch that was believed is known from then on. The node of the quorum that
serves this broker may lag behind the election, so it catches up first. What cannot be found out is not
believed; the controller sends its request again. Hard state is /controller_epoch.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from quorum.client import Client, ClientError
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import ControllerEpoch
from quorum.metadata.records import decode_controller_epoch

#: How long a request waits for the quorum's word; then it is refused, and comes again.
ASK_TIMEOUT_S: Final = 5.0

_log = logging.getLogger(__name__)


class PublishedEpoch:
    """/controller_epoch as the quorum has it."""

    def __init__(self) -> None:
        """Believe nothing before a session is attached."""
        self._client: Client | None = None

    def attach(self, client: Client | None) -> None:
        """Ask through this session from now on; None: there is none."""
        self._client = client

    async def covers(self, controller_epoch: ControllerEpoch) -> bool:
        """Say whether an epoch as large as this was published; False also where nobody can tell."""
        problem = "there is no session with the quorum"
        if self._client is not None:
            try:
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    await self._client.sync(paths.CONTROLLER_EPOCH)
                    data, _ = await self._client.get(paths.CONTROLLER_EPOCH)
                published = decode_controller_epoch(data)
            except (ClientError, MetadataDecodeError) as error:
                problem = error.message
            except TimeoutError:
                problem = f"the quorum did not answer within {ASK_TIMEOUT_S:.0f} s"
            else:
                problem = f"{paths.CONTROLLER_EPOCH} is {published}"
                if controller_epoch <= published:
                    return True
        _log.warning("a request of controller epoch %d is not believed: %s", controller_epoch, problem)
        return False
