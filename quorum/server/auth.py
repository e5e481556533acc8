"""Which identities a client proves with an auth packet.

Decides which schemes are served (digest, with the super user, and ip) and what a proof is worth. The
identities belong to the connection, not to the session. Keeps no state and no password.
Source: DigestAuthenticationProvider of ZooKeeper 3.9.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from quorum.core.codes import AUTH_FAILED, OK

#: what a connection may prove; every run of its commands carries all of it through the log
IDENTITIES_MAX: Final = 32
IDENTITIES_BYTES_MAX: Final = 8192

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
    if scheme == "ip":
        # proven by coming from there, and noted when the connection was made
        return known, OK
    proven = prove(scheme, credentials, super_digest)
    if proven is None:
        return known, AUTH_FAILED
    before = known or []
    after = before + [identity for identity in proven if identity not in before]
    size_bytes = sum(len(name.encode()) for _, name in after)
    if len(after) > IDENTITIES_MAX or size_bytes > IDENTITIES_BYTES_MAX:
        return known, AUTH_FAILED
    return after, OK


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
    identities = [["digest", digest]]
    return [["super", ""], *identities] if super_digest and digest == super_digest else identities
