"""Access to the admin port: bearer tokens, where the node has any.

Decides which token a request needs: none for /livez and /readyz, which a load balancer asks; the one of
readers or of operators to read; the one of operators to change anything, and for what the table of endpoints
keeps for operators. Without tokens everybody may ask, so
a node without them listens on loopback alone (quorum.config). TLS is a proxy's. No state.

Source: RFC 6750; RFC 9110 §11.
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple

from aiohttp import web

from quorum.admin.guard import GuardError

#: what anybody may ask
OPEN_PATHS: Final = frozenset(("/livez", "/readyz"))
_READS: Final = frozenset(("GET", "HEAD"))
_SCHEME: Final = "bearer"


class Tokens(NamedTuple):
    """The tokens of one port.

    Attributes:
        operate: may do everything.
        read: may read.
    """

    operate: bytes
    read: bytes


TOKENS: Final = web.AppKey[Tokens]("tokens")
#: paths of endpoints that operators alone may read
OPERATOR_PATHS: Final = web.AppKey[frozenset[str]]("operator_paths")


def authorize(request: web.Request) -> None:
    """Let a request pass, or refuse it."""
    tokens = request.app.get(TOKENS)
    if tokens is None or request.path in OPEN_PATHS:
        return
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    token = given.strip().encode("utf-8", "surrogateescape")
    known = scheme.lower() == _SCHEME
    # Both are compared, whatever the first one said.
    operates = hmac.compare_digest(token, tokens.operate)
    reads = hmac.compare_digest(token, tokens.read)
    if not known or not (operates or reads):
        remedy = "send Authorization: Bearer with a token, or use `quorate --token-file FILE …`"
        raise GuardError(401, "this port needs a token", remedy)
    if not operates and (request.method not in _READS or _is_of_operators(request)):
        problem = f"this token does not allow {request.method} {request.path}"
        raise GuardError(403, problem, "use the token of security.admin_operate_token_file")


def _is_of_operators(request: web.Request) -> bool:
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in request.app[OPERATOR_PATHS]
