"""Access to the admin port: who asks, and with which role, where the port has tokens or certificates.

Decides what a request needs: nothing for /livez and /readyz, which a load balancer asks; else the role that
the table of endpoints says, and for some znodes that of an admin. A caller proves itself by a bearer token,
by the cookie of a session that a token was traded for, or by its certificate. Without tokens everybody may
ask, so such a port listens on loopback alone (quorum.config). Sessions are kept in memory. Soft state only.

Source: RFC 6750; RFC 6265bis (SameSite, HttpOnly); RFC 9110 §11.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from aiohttp import web

from quorum.admin.guard import GuardError
from quorum.config.admin_port import AdminHolder, AdminHolders, AdminRole
from quorum.errors import shown
from quorum.metadata.paths import is_for_admins
from quorum.platform.tls import peer_subject

#: what anybody may ask
OPEN_PATHS: Final = frozenset(("/livez", "/readyz"))
READS: Final = frozenset(("GET", "HEAD"))
_SCHEME: Final = "bearer"
_HOW_TO_PROVE: Final = "send Authorization: Bearer with a token, or use `quorate --token-file FILE …`"
#: how long a session lasts
SESSION_S: Final = 8 * 3600
#: that are kept at once; the oldest goes
SESSIONS_MAX: Final = 1024
_COOKIE_BYTES: Final = 32


class Sessions:
    """Sessions of pages: each is known by a cookie that only the browser has."""

    def __init__(self) -> None:
        #: {hash of the cookie: (who, when it ends by the monotonic clock)}, the oldest first
        self._sessions: dict[bytes, tuple[AdminHolder, float]] = {}

    def begin(self, holder: AdminHolder) -> str:
        """Return the cookie of a new session."""
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        self._sessions[_hash(cookie)] = holder, time.monotonic() + SESSION_S
        return cookie

    def holder(self, cookie: str) -> AdminHolder | None:
        """Return whose session it is; None: there is none, or it is over."""
        holder, ends_s = self._sessions.get(_hash(cookie), (None, 0.0))
        return holder if time.monotonic() < ends_s else None

    def end(self, cookie: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(_hash(cookie), None)


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()


class Gate(NamedTuple):
    """Who may ask one port.

    Attributes:
        holders: None: everybody. sessions: of pages. roles: {(method, path of the table): role it needs}.
    """

    holders: AdminHolders | None
    sessions: Sessions
    roles: Mapping[tuple[str, str], AdminRole]


class Caller(NamedTuple):
    """Who sends a request.

    Attributes:
        principal: for the audit log: a name, or "dn:SUBJECT"; "": nobody is known.
        holder: None: it has proved nothing.
    """

    principal: str
    holder: AdminHolder | None = None


GATE: Final = web.AppKey[Gate]("gate")


def cookie_name(request: web.Request) -> str:
    """Return the name of the cookie; browsers send cookies to every port of a host."""
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return f"quorate_session_{name[1] if isinstance(name, tuple) else 0}"


def caller_of(request: web.Request) -> Caller:
    """Return who sends a request, as far as it proves that."""
    gate = request.app[GATE]
    subject = _subject(request)
    by_certificate = "" if subject is None else f"dn:{subject}"
    if gate.holders is None:
        return Caller(by_certificate)
    if given := request.headers.get("Authorization"):
        scheme, _, token = given.partition(" ")
        proof = token.strip().encode("utf-8", "surrogateescape")
        holder = gate.holders.by_token(proof) if scheme.lower() == _SCHEME else None
        return Caller("" if holder is None else holder.name, holder)
    if cookie := request.cookies.get(cookie_name(request)):
        holder = gate.sessions.holder(cookie)
        if holder is not None and gate.holders.has(holder):
            return Caller(holder.name, holder)
    return Caller(by_certificate, None if subject is None else gate.holders.by_subject(subject))


def _subject(request: web.Request) -> str | None:
    """Return the subject of the certificate that a caller shows; None: it shows none."""
    transport = request.transport
    return None if transport is None or not request.secure else peer_subject(transport)


def identity_of(request: web.Request) -> tuple[str, str] | None:
    """Return as whom the caller counts in access lists of znodes: (scheme, id); None: as nobody."""
    holder = caller_of(request).holder
    return None if holder is None else holder.identity


def is_still_allowed(request: web.Request) -> bool:
    """Tell whether the caller of an answer that lasts may go on reading."""
    return request.app[GATE].holders is None or caller_of(request).holder is not None


def authorize(request: web.Request, caller: Caller) -> None:
    """Let a request pass, or refuse it."""
    gate = request.app[GATE]
    if gate.holders is None or request.path in OPEN_PATHS:
        return
    _require(request, caller.holder, _needed(request, gate))


def authorize_writes(request: web.Request, paths: Iterable[str]) -> None:
    """Let a request that writes znodes pass, or refuse it: some are for admins alone."""
    holder = caller_of(request).holder
    if request.app[GATE].holders is None:
        return
    for path in paths:
        if is_for_admins(path):
            _require(request, holder, AdminRole.ADMIN, f" of {shown(path)}")


def _require(request: web.Request, holder: AdminHolder | None, needed: AdminRole, about: str = "") -> None:
    if holder is None:
        raise GuardError(401, *_unproved(request))
    if holder.role < needed:
        problem = f"the role {holder.role.name.lower()} does not allow {request.method} {request.path}{about}"
        raise GuardError(403, problem, f"ask as somebody with the role {needed.name.lower()}")


def _unproved(request: web.Request) -> tuple[str, str]:
    """Return (problem, remedy) of a caller that has proved nothing, by what it sent alone.

    A guesser learns only that a guess is wrong: not whether such a token ever was, nor whose it was.
    """
    scheme = request.headers.get("Authorization", "").partition(" ")[0].lower()
    if scheme == _SCHEME:
        problem = "the token that was sent does not count here: it is mistyped, of another port, or revoked"
        return problem, "send one of this port's security.admin_tokens_file, or ask its admin for one"
    if scheme:
        return "this port takes no Authorization but Bearer", _HOW_TO_PROVE
    if cookie_name(request) in request.cookies:
        problem = "the session is over: it was ended, eight hours have passed, or its token was revoked"
        return problem, "begin another one with a token, by POST /v1/session"
    if (subject := _subject(request)) is not None:
        problem = f"the certificate of {shown(subject)} has no role at this port"
        return problem, "list NAME ROLE dn:SUBJECT in security.admin_tokens_file, or send a token"
    return "this port needs a token", _HOW_TO_PROVE


def _needed(request: web.Request, gate: Gate) -> AdminRole:
    resource = request.match_info.route.resource
    path = "" if resource is None else resource.canonical
    method = "GET" if request.method in READS else request.method
    return gate.roles.get((method, path), AdminRole.READER if method == "GET" else AdminRole.OPERATOR)
