"""SASL DIGEST-MD5, the client's side of one connection: two requests, and the server's own proof.

Decides what a challenge is answered with, and whether the server knows the password as well. Knows tokens, no
socket; the nonce comes from the caller. Soft state only.
Source: RFC 2831, 2.1; ZooKeeperSaslClient of ZooKeeper 3.9.
"""

from __future__ import annotations

import hmac
from typing import Protocol

from quorum.errors import ProtocolError
from quorum.wire.digest_md5 import COUNT, SERVICE, Proofs, SaslError, quoted, read_directives, secret_hash


class Login(Protocol):
    """Who a client is by SASL."""

    @property
    def name(self) -> str:
        """Of the user, as the servers know it."""

    def password(self) -> str:
        """Return what is proved; asked at each connection, so that it may change in between."""


class DigestExchange:
    """The proof on one connection."""

    def __init__(self, login: Login, client_nonce: str) -> None:
        """Begin; client_nonce: letters and digits that were never used before."""
        self._name, self._password = login.name, login.password()
        self._client_nonce = client_nonce
        #: what the server must prove; "": it sent no challenge yet
        self._expected = ""

    def take(self, token: bytes) -> bytes | None:
        """Take a token of the server.

        Returns:
            The next one of the client; None: both have proved that they know the password.

        Raises:
            ProtocolError: it is not what a server says then, or the server does not know the password.
        """
        try:
            given = read_directives(token)
        except SaslError as error:
            raise ProtocolError(f"a token of SASL: {error}") from error
        if self._expected:
            if not hmac.compare_digest(given.get("rspauth", "").encode(), self._expected.encode()):
                raise ProtocolError("the server does not prove that it knows the password of SASL")
            return None
        nonce, realm = given.get("nonce", ""), given.get("realm", "")
        if not nonce or "auth" not in given.get("qop", "auth").split(","):
            raise ProtocolError("a challenge of SASL without a nonce, or without the quality auth")
        proofs = Proofs(secret_hash(self._name, realm, self._password), nonce, self._client_nonce)
        self._expected = proofs.of_server()
        return (
            f"charset=utf-8,username={quoted(self._name)},realm={quoted(realm)},nonce={quoted(nonce)},"
            f'nc={COUNT},cnonce="{self._client_nonce}",digest-uri="{SERVICE}",maxbuf=65536,'
            f"response={proofs.of_client()},qop=auth"
        ).encode()
