"""What one connection has to prove before it is served, how long that holds, and who it is then.

Decides when a proof is out of date: after connections_max_reauth_ms, or when its token is, the client proves
itself again on the same connection, as the same user by the same mechanism. Soft state only.
Source: SaslServerAuthenticator (Kafka 3.9); KIP-152, KIP-255, KIP-368.
"""

from __future__ import annotations

import time
from typing import Final

from broker.config.sasl import OAUTHBEARER, PLAIN
from broker.server.requests import Request
from broker.wire.codec import Values
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.sasl import SaslAnswer, SaslGate
from controller.wire.scram import SaslServer

#: what may come before any proof
_BEFORE: Final = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
#: of a listener where there is nothing to prove
NO_SASL: Final[Values] = {
    "error_code": ErrorCode.ILLEGAL_SASL_STATE,
    "error_message": "this listener asks for no proof",
    "mechanisms": (),
    "auth_bytes": b"",
}


class Authentication:
    """The proofs of one connection."""

    def __init__(self, server: SaslServer, reauth_ms: int) -> None:
        """Ask for a proof; reauth_ms: for how long it holds, 0: for ever."""
        self._server = server
        self._reauth_ms = reauth_ms
        self._gate = SaslGate(server)
        #: whose proof holds, and by which mechanism
        self._proved: tuple[str, str] | None = None
        self._ends_s = 0.0
        self.refusal = ""

    @property
    def proved(self) -> bool:
        """Whether there was a proof."""
        return self._proved is not None

    @property
    def is_peer(self) -> bool:
        """Whether the other side has proved that it is a broker."""
        return self._proved is not None and not self._server.names_users

    @property
    def principal(self) -> str:
        """Who the client has proved to be; who another proof names, before it is complete, does not count."""
        assert self._proved is not None, "asked of clients that have proved something"
        return f"User:{self._proved[0]}"

    @property
    def claimed(self) -> tuple[str, str]:
        """Who the other side says it is, and by which mechanism it would prove that."""
        return f"User:{self._gate.user}" if self._gate.user else "", self._gate.mechanism or "SASL"

    def takes_long(self, request: Request) -> bool:
        """Tell whether an answer salts a password or checks a token: that takes milliseconds, or longer."""
        return request.api_key == ApiKey.SASL_AUTHENTICATE and self._gate.mechanism in (PLAIN, OAUTHBEARER)

    def problem(self, api_key: int) -> str | None:
        """Return why a request may not come now."""
        if api_key in _BEFORE:
            return None
        if self._proved is None:
            return f"{ApiKey(api_key).name} before authentication"
        if self._ends_s and time.monotonic() > self._ends_s:
            told = "out of date (sasl.connections_max_reauth_ms, or the exp of a token)"
            return f"{ApiKey(api_key).name} after its proof was {told}"
        return None

    def answer(self, request: Request) -> SaslAnswer:
        """Answer SaslHandshake or SaslAuthenticate; see takes_long."""
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            if self._proved is not None and self._ends_s:
                self._gate = SaslGate(self._server)
            answer = self._gate.handle_handshake(request.body, request.api_version)
        else:
            answer = self._gate.handle_authenticate(
                request.body, request.api_version, lifetime_ms=self._reauth_ms, must_be=self._proved
            )
            if self._gate.authenticated and not answer.close:
                self._proved = self._gate.user, self._gate.mechanism
                lifetime_ms = self._gate.lifetime_ms
                self._ends_s = time.monotonic() + lifetime_ms / 1000 if lifetime_ms else 0.0
        self.refusal = self._gate.refusal
        return answer
