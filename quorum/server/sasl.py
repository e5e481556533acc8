"""SASL DIGEST-MD5, the server's side: a challenge, the check of the response, and the answer that proves the
server, too.

Decides which responses are believed: quality "auth" alone, in the realm that ZooKeeper's clients know. Knows
a user by the hash of name, realm and password, as a line of htdigest has it. Pure: the nonce comes from the
caller.
Source: RFC 2831, 2.1; SaslServerPrincipal and DigestLoginModule of ZooKeeper 3.9.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from quorum.config.sasl_users import REALM

#: what the clients call this service
_SERVICE: Final = f"zookeeper/{REALM}"
#: of one response; clients send some 300
TOKEN_BYTES_MAX: Final = 4096
#: what an unknown name is checked against, so that it takes as long as a known one
_NOBODY: Final = "0" * 32
_DIRECTIVE: Final = re.compile(
    r'[ \t]*([A-Za-z0-9-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s",=]+))[ \t]*(?:,|$)',
    re.ASCII | re.DOTALL,
)


class SaslError(Exception):
    """A response that is not believed; the text says why, without anything secret."""


class Proven(NamedTuple):
    """Who has proven a password, and what proves to the client that the server knows it.

    Attributes:
        name: of the user. token: the last one of the server.
    """

    name: str
    token: bytes


def challenge(nonce: str) -> bytes:
    """Return the first token of the server.

    Args:
        nonce: letters and digits that nobody can foresee, never used before.
    """
    return f'realm="{REALM}",nonce="{nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode("ascii")


def check(token: bytes, nonce: str, hash_of: Callable[[str], str | None]) -> Proven:
    """Check the response to a challenge.

    Args:
        token: as the client sent it.
        nonce: of the challenge.
        hash_of: returns the hash of a name, 32 hexadecimal digits; None for nobody.

    Raises:
        SaslError: it proves nothing.
    """
    given = _directives(token)
    name, client_nonce, count = (_needed(given, key) for key in ("username", "cnonce", "nc"))
    response = _needed(given, "response")
    for key, expected, otherwise in (
        ("nonce", nonce, ""),
        ("realm", REALM, ""),
        ("digest-uri", _SERVICE, ""),
        ("qop", "auth", "auth"),
        ("nc", "00000001", ""),
        ("authzid", name, name),
    ):
        value = given.get(key, otherwise)
        if value != expected:
            raise SaslError(f"its {key} is {value[:100]!r}, {expected!r} was expected")
    known = hash_of(name)
    secret = bytes.fromhex(_NOBODY if known is None else known)
    on_behalf_of = f":{name}" if "authzid" in given else ""
    key = _md5(secret + f":{nonce}:{client_nonce}{on_behalf_of}".encode()).hex()

    def answer(method: str) -> str:
        uri = _md5(f"{method}:{_SERVICE}".encode()).hex()
        return _md5(f"{key}:{nonce}:{count}:{client_nonce}:auth:{uri}".encode()).hex()

    is_right = hmac.compare_digest(answer("AUTHENTICATE").encode(), response.encode())
    if known is None or not is_right:
        raise SaslError(f"name {name[:100]!r} and password belong to no user")
    return Proven(name, b"rspauth=" + answer("").encode())


def _directives(token: bytes) -> dict[str, str]:
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


def _needed(given: dict[str, str], key: str) -> str:
    value = given.get(key, "")
    if not value:
        raise SaslError(f"its response has no {key}")
    return value


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
