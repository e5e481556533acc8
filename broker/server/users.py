"""How users prove who they are: PLAIN and SCRAM against the credentials in the quorum.

Decides what a client without a user's password gets: the same answers, whether there is such a user or not. A
user that does not exist has a salt, too, which all brokers make alike and which stays. Soft state only.
Source: RFC 4616, RFC 5802 (section 9); PlainSaslServer, ScramSaslServer (Kafka 3.9).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence

from broker.config.sasl import OAUTHBEARER, PLAIN
from controller.wire.scram import (
    MESSAGE_BYTES_MAX,
    Exchange,
    Presented,
    ScramError,
    ScramExchange,
    ScramVerifier,
)
from quorum.metadata.user_records import (
    ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    Mechanism,
    ScramCredential,
)

Credentials = Mapping[Mechanism, ScramCredential]


class UserProofs:
    """What a listener of clients takes as proof."""

    names_users = True

    def __init__(
        self,
        mechanisms: Sequence[str],
        credentials_of: Callable[[str], Credentials],
        made_up: Callable[[str], bytes],
        token_exchange: Callable[[], Exchange] | None = None,
    ) -> None:
        """Take these mechanisms.

        Args:
            mechanisms: that are offered.
            credentials_of: returns what is kept of a user; nothing of one that does not exist.
            made_up: returns 32 bytes for a text, always the same, which nobody else can know.
            token_exchange: begins one of OAUTHBEARER, if that is offered.
        """
        self.mechanisms = mechanisms
        self._credentials_of = credentials_of
        self._made_up = made_up
        self._token_exchange = token_exchange

    def exchange(self, mechanism: str) -> Exchange:
        """Begin the exchange of one connection."""
        if mechanism == PLAIN:
            return _PlainExchange(self.is_password)
        if mechanism == OAUTHBEARER:
            assert self._token_exchange is not None, "it is not offered without"
            return self._token_exchange()
        asked = SCRAM_MECHANISMS[mechanism]
        refusal = ScramError(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{mechanism}"
        )

        def find(user: str) -> Presented:
            found = self.credential(user, asked)
            verifier = ScramVerifier(found.stored_key, found.server_key, asked.digest)
            return Presented((verifier,), found.salt, found.iterations, refusal)

        return ScramExchange(find)

    def credential(self, user: str, mechanism: Mechanism) -> ScramCredential:
        """Return the credential of a user, or one that nobody can prove."""
        found = self._credentials_of(user).get(mechanism)
        if found is not None:
            return found
        salt = self._made_up(f"{mechanism.text} salt {user}")[:SALT_BYTES]
        unknown = hashlib.new(mechanism.digest, self._made_up(f"{mechanism.text} key {user}")).digest()
        return ScramCredential(salt, unknown, unknown, ITERATIONS)

    def is_password(self, user: str, password: str) -> bool:
        """Tell whether this is the password of a user; takes milliseconds."""
        kept = self._credentials_of(user)
        mechanism = next(iter(kept), Mechanism.SCRAM_SHA_256)
        found = self.credential(user, mechanism)
        given = ScramCredential.of_password(mechanism, password, found.salt, found.iterations)
        return hmac.compare_digest(given.stored_key, found.stored_key)


class _PlainExchange:
    """PLAIN: one message with the password itself."""

    def __init__(self, is_password: Callable[[str, str], bool]) -> None:
        self._is_password = is_password
        self.user = ""
        self.authenticated = False
        self.lifetime_ms = 0

    def answer(self, message: bytes) -> bytes:
        """Check the password; takes milliseconds."""
        try:
            identity, user, password = message[:MESSAGE_BYTES_MAX].decode().split("\0")
        except ValueError:
            raise ScramError("Invalid SASL/PLAIN response", "the client must follow RFC 4616") from None
        if not user or not password:
            raise ScramError("Authentication failed: username or password not specified")
        if identity not in ("", user):
            raise ScramError("Authentication failed: another identity is asked for")
        self.user = user
        if not self._is_password(user, password):
            raise ScramError("Authentication failed: Invalid username or password")
        self.authenticated = True
        return b""
