"""Which identities a client proves: by its certificate, with auth packets, and by SASL.

Decides which schemes are served (digest, with the super user, ip, x509 and sasl), what a proof is worth, and
whether a client has proven what all must. The identities belong to the connection, not to the session, and
all of them count. Keeps no password.
Source: DigestAuthenticationProvider, X509AuthenticationProvider, AuthenticationHelper and
ZooKeeperServer.processSasl of ZooKeeper 3.9.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
from typing import Final

from quorum.core.codes import AUTH_FAILED, OK, SASL_REQUIRED
from quorum.server import sasl
from quorum.server.options import ServerOptions
from quorum.wire.digest_md5 import SaslError

log = logging.getLogger("quorate.server")

#: what a connection may prove; every run of its commands carries all of it through the log
IDENTITIES_MAX: Final = 32
IDENTITIES_BYTES_MAX: Final = 8192
_NONCE_BYTES: Final = 24
#: by which a node's own client proves that it is that, and names whom it asks for
OWN_SCHEME: Final = "node"
#: that it may name
_ASKED_FOR: Final = ("sasl", "x509")

Identities = list[list[str]]


def authenticate(
    known: Identities | None, scheme: str, credentials: bytes, super_digest: str
) -> tuple[Identities | None, int]:
    """Return what a connection has proven with one more packet, and the code of the answer.

    Args:
        known: [[scheme, id], …] so far, or None; stays as it is.
        scheme: as the client sent it.
        credentials: of the scheme.
        super_digest: as in `prove`.
    """
    if scheme == "ip" or (scheme == "x509" and any(each[0] == scheme for each in known or ())):
        # proven by coming from there, with that certificate, and noted when the connection was made
        return known, OK
    proven = prove(scheme, credentials, super_digest)
    return (known, AUTH_FAILED) if proven is None else _join(known, proven)


def _join(known: Identities | None, proven: Identities) -> tuple[Identities | None, int]:
    before = known or []
    after = before + [identity for identity in proven if identity not in before]
    size_bytes = sum(len(name.encode()) for _, name in after)
    if len(after) > IDENTITIES_MAX or size_bytes > IDENTITIES_BYTES_MAX:
        return known, AUTH_FAILED
    return after, OK


def own_credentials(own_proof: bytes, identity: tuple[str, str] | None) -> bytes:
    """Return what a node's own client proves.

    Args:
        own_proof: as ServerOptions has it. identity: (scheme, id) that it asks for; None: nobody.
    """
    return own_proof + (b"" if identity is None else ":".join(identity).encode())


def asked_for(own_proof: bytes, credentials: bytes) -> Identities | None:
    """Return whom a node's own client asks for, with its credentials; None: it is not that."""
    size = len(own_proof)
    if not hmac.compare_digest(credentials[:size], own_proof):
        return None
    scheme, _, name = credentials[size:].decode("utf-8", "replace").partition(":")
    return [[scheme, name]] if scheme in _ASKED_FOR else []


class SaslExchange:
    """The exchange of tokens of one connection; there is one a connection, and then no other."""

    def __init__(self, options: ServerOptions, address: str) -> None:
        """Await the first token, which is empty.

        Args:
            options: users and super user. address: of the client, for the log.
        """
        self._options = options
        self._address = address
        #: of the challenge; "": none was sent
        self._nonce = ""
        self._done = False

    def take(self, known: Identities | None, token: bytes) -> tuple[Identities | None, bytes | None, int]:
        """Return what a connection has proven with one more token, the server's token, and the answer's code;
        a refusal has no token.

        Args:
            known: [[scheme, id], …] so far, or None; stays as it is.
            token: as the client sent it.
        """
        if not self._nonce and not token:
            self._nonce = secrets.token_hex(_NONCE_BYTES)
            return known, sasl.challenge(self._nonce), OK
        options = self._options
        try:
            if self._done or not self._nonce or options.sasl_users is None:
                raise SaslError("no challenge waits for a response")
            self._done = True
            name, answer = sasl.check(token, self._nonce, options.sasl_users.get)
        except SaslError as error:
            log.warning("refused SASL of %s: %s", self._address, error)
            return known, None, SASL_REQUIRED if "sasl" in options.required_schemes else AUTH_FAILED
        is_super = bool(options.super_user) and name == options.super_user
        after, err = _join(known, as_super(["sasl", name], is_super=is_super))
        return after, answer if err == OK else None, err


def lacks(required_schemes: tuple[str, ...], known: Identities | None) -> bool:
    """Tell whether a connection has proven by none of the schemes that are required, if any are."""
    return bool(required_schemes) and not any(each[0] in required_schemes for each in known or ())


def as_super(identity: list[str], *, is_super: bool) -> Identities:
    """Return an identity, with the super user's if it is that."""
    return [["super", ""], identity] if is_super else [identity]


def by_connecting(host: str, subject: str, x509_super_user: str) -> Identities:
    """Return what a client proves by coming from an address with a certificate.

    Args:
        host: its address. subject: of its certificate, as RFC 2253 writes it; "": it has none.
        x509_super_user: the subject of the super user; "": there is none.
    """
    found = [["ip", host]]
    if subject and len(subject.encode()) <= IDENTITIES_BYTES_MAX // 2:
        found += as_super(["x509", subject], is_super=subject == x509_super_user)
    return found


def prove(scheme: str, credentials: bytes, super_digest: str) -> Identities | None:
    """Return the [[scheme, id], …] that credentials prove, None if the scheme is not served.

    Args:
        scheme: as the client sent it.
        credentials: of the scheme; for digest "user:password".
        super_digest: "user:base64 of SHA-1 of user:password" of the super user; "": there is none.
    """
    if scheme != "digest":
        return None
    text = credentials.decode("utf-8", "replace")
    hashed = base64.b64encode(hashlib.sha1(text.encode(), usedforsecurity=False).digest()).decode()
    digest = f"{text.partition(':')[0]}:{hashed}"
    return as_super(["digest", digest], is_super=bool(super_digest) and digest == super_digest)
