"""What the admin port refuses before any endpoint looks: requests that a page in a browser may have made.

A page of another site in the browser of somebody who reaches the port must not get anywhere. It comes under a
name of its own, also where it made that name lead to this port (DNS rebinding): so the Host must be a literal
address or a configured name. What a page of another site or port asks for under a name of ours, it cannot
read, but the answer would be made: browsers say in Sec-Fetch-Site whose page asks. A change needs
`Content-Type: application/json`, which a page cannot send elsewhere without asking first. A page that this
port itself serves says so in its Origin, and may change what somebody who has proved a name may.
Decides nothing about what is asked. No state.

Source: RFC 9110 §7.2 (Host) and §15.5.20 (421); RFC 6454 §7; the Fetch standard, "Origin header", "CORS";
W3C Fetch Metadata Request Headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from aiohttp import web

from quorum.errors import shown

#: names that lead to this machine wherever they are looked up
LOCAL_HOSTS: Final = ("localhost",)
#: what an application's port may be called; lower case
HOSTS: Final = web.AppKey[frozenset[str]]("hosts")
#: whether a proxy before the port encrypts, so that pages come from https
BEHIND_PROXY: Final = web.AppKey[bool]("behind_proxy")
#: whose request a browser may bring: its user's, or that of a page of this very port
_OWN_SITES: Final = frozenset(("none", "same-origin"))
CHANGES: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_JSON: Final = "application/json"
_PORT: Final = re.compile(r":[0-9]{0,5}\Z", re.ASCII)


class GuardError(Exception):
    """A request that is refused unseen.

    Attributes:
        status: HTTP status. problem, remedy: for the answer.
    """

    def __init__(self, status: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem
        self.remedy = remedy


def lower_case(names: Iterable[str]) -> frozenset[str]:
    """Return names as a Host is compared with them."""
    return frozenset(name.lower() for name in names)


def guard(request: web.Request) -> None:
    """Let a request pass, or refuse it."""
    for host in request.headers.getall("Host", []):
        if not _is_ours(host, request.app[HOSTS]):
            raise GuardError(
                421,
                f"Host {shown(host)} is neither an address nor a name of this port",
                "use an address, or list the name in security.admin_hosts",
            )
    if not _OWN_SITES.issuperset(request.headers.getall("Sec-Fetch-Site", [])):
        problem = "pages of other sites and ports are not answered (Sec-Fetch-Site)"
        raise GuardError(403, problem, "open the address itself, or use the command `quorate` or curl")


def guard_change(request: web.Request, *, proved: bool) -> None:
    """Let a request for a path and method that are there pass, or refuse it.

    Args:
        request: it. proved: whether its caller has proved a name.
    """
    if request.method not in CHANGES:
        return
    if origins := request.headers.getall("Origin", []):
        if origins != [_own_origin(request)]:
            problem = "changes are not taken from pages of other sites and ports (Origin)"
            raise GuardError(403, problem, "open the address itself, or use the command `quorate` or curl")
        if not proved:
            problem = "changes are taken from pages only where the port asks for tokens"
            raise GuardError(403, problem, "set security.admin_tokens_file, or use the command `quorate`")
    if request.content_type != _JSON:
        raise GuardError(
            415, f"a change needs Content-Type: {_JSON}", f"send the header Content-Type: {_JSON}"
        )


def is_encrypted(request: web.Request) -> bool:
    """Tell whether browsers reach this port by https."""
    return request.secure or request.app[BEHIND_PROXY]


def _own_origin(request: web.Request) -> str:
    """Return the Origin of a page that this port serves, as the browser that sends the request names it."""
    return f"{'https' if is_encrypted(request) else 'http'}://{request.headers.get('Host', '').lower()}"


def _is_ours(host: str, names: frozenset[str]) -> bool:
    """Tell whether a Host, with or without a port, is a literal address or one of some names."""
    name = _PORT.sub("", host.strip()) if not _is_address(host) else host
    return _is_address(name.removeprefix("[").removesuffix("]")) or name.lower().removesuffix(".") in names


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
