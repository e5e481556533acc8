"""SASL DIGEST-MD5 as both sides write it: lists of directives, and the proof that a password is known.

Pure; decides nothing about whom to believe (quorum.server.sasl, quorum.client.sasl). Quality "auth" alone,
and one response a challenge.
Source: RFC 2831, 2.1; SaslServerPrincipal and DigestLoginModule of ZooKeeper 3.9.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

#: the realm that ZooKeeper's servers name, and what their clients call the service
REALM: Final = "zk-sasl-md5"
SERVICE: Final = f"zookeeper/{REALM}"
#: how many responses there were to a challenge
COUNT: Final = "00000001"
#: of one token; peers send some 300
TOKEN_BYTES_MAX: Final = 4096
_DIRECTIVE: Final = re.compile(
    r'[ \t]*([A-Za-z0-9-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s",=]+))[ \t]*(?:,|$)',
    re.ASCII | re.DOTALL,
)


class SaslError(Exception):
    """A token that is not believed; the text says why, without anything secret."""


def read_directives(token: bytes) -> dict[str, str]:
    """Return {name: value} of a token.

    Raises:
        SaslError: it is none, or names a directive twice.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise SaslError(f"its response has {len(token)} bytes, at most {TOKEN_BYTES_MAX} are allowed")
    try:
        text = token.decode("utf-8")
    except UnicodeDecodeError:
        raise SaslError("its response is no UTF-8") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        matched = _DIRECTIVE.match(text, at)
        if matched is None:
            raise SaslError("its response is no list of directives")
        key, quoted, plain = matched.groups()
        if key in found:
            raise SaslError(f"its response has {key} twice")
        found[key] = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        at = matched.end()
    return found


def quoted(value: str) -> str:
    """Return a value as a quoted string."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def secret_hash(name: str, realm: str, password: str) -> bytes:
    """Return the hash of name, realm and password, 16 bytes: what a server may keep, and as good as both."""
    return _md5(f"{name}:{realm}:{password}".encode())


class Proofs:
    """What both sides of one exchange prove to each other."""

    def __init__(self, secret: bytes, nonce: str, client_nonce: str, authzid: str | None = None) -> None:
        """Derive the key of the exchange.

        Args:
            secret: as secret_hash has it. nonce: of the challenge. client_nonce: of the response.
            authzid: on whose behalf, if the response says so.
        """
        behalf = "" if authzid is None else f":{authzid}"
        self._key = _md5(secret + f":{nonce}:{client_nonce}{behalf}".encode()).hex()
        self._nonces = f"{nonce}:{COUNT}:{client_nonce}"

    def of_client(self) -> str:
        """Return the proof in the client's response."""
        return self._answer("AUTHENTICATE")

    def of_server(self) -> str:
        """Return the proof in the server's last token."""
        return self._answer("")

    def _answer(self, method: str) -> str:
        uri = _md5(f"{method}:{SERVICE}".encode()).hex()
        return _md5(f"{self._key}:{self._nonces}:auth:{uri}".encode()).hex()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
