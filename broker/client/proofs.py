"""What a client of brokers proves on SASL listeners: a name and its password, by SCRAM or PLAIN.

Decides the messages of one connection; the password is asked for at each. No state.
Source: KIP-43, KIP-84, KIP-152.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from controller.wire.scram import PlainClient, SaslClient, ScramClient
from quorum.client.sasl import Login
from quorum.metadata.user_records import SCRAM_MECHANISMS

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*SCRAM_MECHANISMS, PLAIN)
_REMEDY: Final = "see that the user exists (quorate users list), and that the password is its own"


class BrokerProof(NamedTuple):
    """A login, and the mechanism by which it is proved."""

    login: Login
    mechanism: str

    def begin(self) -> SaslClient:
        """Return the exchange of one connection."""
        name, password = self.login.name, self.login.password()
        if self.mechanism == PLAIN:
            return PlainClient(name, password, _REMEDY)
        return ScramClient.of_user(name, password, SCRAM_MECHANISMS[self.mechanism], _REMEDY)
