"""What a running broker does when its file of peer secrets changes.

It takes a file that matches the cluster's check value, proves what is new to the quorum, creates for holders
of the first secret from then on, and signs its registration with that one: in this order, so that a
registration signed by a secret says that nothing more will hang on former ones (quorum.metadata.rotation). A
broker without a session takes the file within a minute of the next one. Soft state only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from broker.lifecycle.peer_secret import WrongPeerSecretError, check_peer_secret
from broker.lifecycle.state import BrokerState
from controller.election.store import sign_again
from quorum.client import Client
from quorum.config.peer_secrets import PeerSecrets
from quorum.errors import QuorateError
from quorum.metadata.protection import prove_secrets
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.broker")

#: Pause before what the quorum did not answer is done again.
AGAIN_S: Final = 1.0


class SecretChanges:
    """Follows the file of one broker."""

    def __init__(self, secrets: PeerSecrets, state: BrokerState) -> None:
        """Follow nothing yet.

        Args:
            secrets: what counts now; all of the broker's parts see it.
            state: of the broker.
        """
        self._secrets = secrets
        self._state = state
        self._due = asyncio.Event()
        #: what the registration may be signed with now, until it is signed with the first secret
        self._signed_by: Trust | None = None

    def look(self) -> None:
        """Read the file soon."""
        self._due.set()

    async def run(self) -> None:
        """Read the file again when asked, and until the quorum knows what it has; for ever."""
        pause_s: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()
            self._due.clear()
            pause_s = None
            try:
                await self._follow()
            except WrongPeerSecretError as error:
                self._secrets.warn(error.message, error.remedy)
            except QuorateError as error:
                pause_s = AGAIN_S
                broker_id = self._state.config.broker.id
                log.info("broker %d reads its secrets again soon: %s", broker_id, error.message)

    async def _follow(self) -> None:
        registration, session = self._state.registration, self._state.session
        if registration is None or session is None:
            return
        parts = registration.parts
        found = self._secrets.reread()
        if found is not None:
            await check_peer_secret(session.client, Trust(found, parts.cluster_id))
            former = [each for each in self._secrets if each not in found]
            self._signed_by = Trust([*found, *former], parts.cluster_id)
            self._secrets.replace(found)
        if self._signed_by is not None:
            await self._apply(session.client, parts.trust, self._signed_by)
            self._signed_by = None

    async def _apply(self, client: Client, trust: Trust, signed_by: Trust) -> None:
        await prove_secrets(client, trust)
        if client.default_acl is not None:
            client.default_acl = trust.access()
        await sign_again(client, self._state.config.broker.id, signed_by)
