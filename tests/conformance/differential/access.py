"""Access lists and credentials that streams use. The passwords guard nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from tests.conformance.differential.wire import AclEntry

Acl = tuple[AclEntry, ...]


def digest_of(credentials: str) -> str:
    """Return user:base64(SHA-1(user:password)), as it stands in an ACL of the scheme digest."""
    hashed = hashlib.sha1(credentials.encode(), usedforsecurity=False).digest()
    return f"{credentials.partition(':')[0]}:{base64.b64encode(hashed).decode()}"


ALICE: Final = "alice:wonder"
BOB: Final = "bob:builder"
SUPER: Final = "super:secret"
SUPER_DIGEST: Final = digest_of(SUPER)

OPEN: Final[Acl] = ((31, "world", "anyone"),)

#: lists that keep somebody out
RESTRICTED: Final[tuple[Acl, ...]] = (
    ((31, "digest", digest_of(ALICE)),),
    ((31, "digest", digest_of(ALICE)), (1, "world", "anyone")),
    ((31, "digest", digest_of(BOB)), (16, "world", "anyone")),
    ((1, "world", "anyone"),),
    ((30, "world", "anyone"),),
    ((31 & ~4, "world", "anyone"),),
    ((31 & ~8, "world", "anyone"),),
    ((31 & ~2, "world", "anyone"),),
    ((31, "ip", "10.1.2.3"),),
    ((31, "ip", "10.0.0.0/8"), (16, "digest", digest_of(BOB))),
)
#: lists that let everybody of this machine in
GENEROUS: Final[tuple[Acl, ...]] = (
    OPEN,
    ((31, "ip", "127.0.0.1"),),
    ((31, "ip", "127.0.0.0/8"),),
    ((31, "ip", "0.0.0.0/0"),),
    ((31, "world", "anyone"), (31, "digest", digest_of(BOB))),
    ((31, "world", "anyone"), (31, "world", "anyone")),
    ((15, "world", "anyone"), (16, "world", "anyone")),
)
#: lists that depend on who the client has shown to be
OWN: Final[tuple[Acl, ...]] = (((31, "auth", ""),), ((31, "auth", "ignored"),))
#: lists that are none; a null one would stop the request pipeline of ZooKeeper 3.9.5
INVALID: Final[tuple[Acl, ...]] = (
    (),
    ((31, "nothing", "x"),),
    ((31, "world", "somebody"),),
    ((31, "digest", "alice"),),
    ((31, "digest", "a:b:c"),),
    ((31, "ip", "300.1.1.1"),),
    ((31, "ip", "10.0.0.0/33"),),
    ((31, "ip", "10.0.0.0/x"),),
    ((31, "ip", "host"),),
    ((31, "", ""),),
    ((31, "world", "anyone"), (31, "nothing", "x")),
)
#: (scheme, credentials, likely to succeed)
CREDENTIALS: Final = (
    ("digest", ALICE.encode(), True),
    ("digest", ALICE.encode(), True),
    ("digest", BOB.encode(), True),
    ("digest", b"alice:other", True),
    ("digest", b"nocolon", True),
    ("digest", SUPER.encode(), True),
    ("ip", b"", True),
    ("world", b"anyone", False),
    ("nothing", b"x", False),
)
