"""SASL DIGEST-MD5, the server's side: a challenge, the check of the response, and the answer that proves the
server, too.

Decides which responses are believed: quality "auth" alone, in the realm that ZooKeeper's clients know. Knows
a user by the hash of name, realm and password, as a line of htdigest has it. Pure: the nonce comes from the
caller.
Source: RFC 2831, 2.1; SaslServerPrincipal and DigestLoginModule of ZooKeeper 3.9.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from quorum.wire.digest_md5 import COUNT, REALM, SERVICE, Proofs, SaslError, read_directives

#: what an unknown name is checked against, so that it takes as long as a known one
_NOBODY: Final = "0" * 32


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
    given = read_directives(token)
    name, client_nonce = (_needed(given, key) for key in ("username", "cnonce"))
    _needed(given, "nc")
    response = _needed(given, "response")
    for key, expected, otherwise in (
        ("nonce", nonce, ""),
        ("realm", REALM, ""),
        ("digest-uri", SERVICE, ""),
        ("qop", "auth", "auth"),
        ("nc", COUNT, ""),
        ("authzid", name, name),
    ):
        value = given.get(key, otherwise)
        if value != expected:
            raise SaslError(f"its {key} is {value[:100]!r}, {expected!r} was expected")
    known = hash_of(name)
    secret = bytes.fromhex(_NOBODY if known is None else known)
    proofs = Proofs(secret, nonce, client_nonce, given.get("authzid"))
    is_right = hmac.compare_digest(proofs.of_client().encode(), response.encode())
    if known is None or not is_right:
        raise SaslError(f"name {name[:100]!r} and password belong to no user")
    return Proven(name, b"rspauth=" + proofs.of_server().encode())


def claimed(token: bytes) -> str:
    """Return whose response a token says it is; "": it does not, or is none."""
    try:
        return read_directives(token).get("username", "")
    except SaslError:
        return ""


def _needed(given: dict[str, str], key: str) -> str:
    value = given.get(key, "")
    if not value:
        raise SaslError(f"its response has no {key}")
    return value
