"""What the console refuses before any endpoint looks, and what every answer carries.

A page of another site must get nowhere: Host is a literal address or a name of ours (DNS rebinding), what is
asked below /api comes from a page of the console itself or from no page, and a change proves that it does by
the token of the session, which no other site can read. Decides nothing about what is asked. No state.

Source: RFC 9110 §15.5.20; RFC 9457; the Fetch standard, "Origin header"; docs/operate/console.md.
"""

from __future__ import annotations

import hmac
import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from quorum.admin.endpoint import Handler
from quorum.admin.view import BadInputError, answer_to, error_answer
from quorum.console.upstream import NodeRefusalError
from quorum.errors import QuorateError, UnreachableError, printable, shown

#: of a change: a znode's value, in base64
REQUEST_BYTES_MAX: Final = 2 * 1024 * 1024
PROOF_HEADER: Final = "Quorate-Token"
TOKEN: Final = web.AppKey[str]("token")
READ_ONLY: Final = web.AppKey[bool]("read_only")
#: names that the console may be asked by, besides literal addresses; lower case
NAMES: Final = web.AppKey[frozenset[str]]("names")
POLICY: Final = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'"),
        *("connect-src 'self'", "worker-src 'self'", "base-uri 'none'", "form-action 'none'"),
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OWN_SITES: Final = frozenset(("none", "same-origin"))
_READS: Final = frozenset(("GET", "HEAD"))
_PORT: Final = re.compile(r":[0-9]{0,5}\Z", re.ASCII)


class RefusalError(Exception):
    """A request that is refused.

    Attributes:
        status, problem, remedy: for the answer.
        more: further fields of the problem.
    """

    def __init__(self, status: int, problem: str, remedy: str, **more: object) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem
        self.remedy = remedy
        self.more = more


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Give an answer the headers that every one has."""
    response.headers.update(HEADERS)
    if request.path.startswith("/api/"):
        response.headers["Cache-Control"] = "no-store"


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what must not be answered, and turn errors into problems."""
    try:
        _check_host(request)
        if request.path.startswith("/api/"):
            _check_site(request)
        if request.method not in _READS:
            _check_change(request)
        return await handler(request)
    except RefusalError as error:
        return error_answer(error.status, error.problem, error.remedy, **error.more)
    except NodeRefusalError as error:
        more = {"field": error.field} if error.field else {}
        return error_answer(error.status, error.problem, error.remedy, **more)
    except BadInputError as error:
        return error_answer(400, error.problem, error.remedy, field=error.field)
    except UnreachableError as error:
        return error_answer(503, error.message, error.remedy)
    except QuorateError as error:
        return answer_to(error)
    except web.HTTPNotFound:
        return error_answer(404, f"nothing is at {request.path}", "begin at /")
    except web.HTTPRequestEntityTooLarge:
        return error_answer(413, f"the body is larger than {REQUEST_BYTES_MAX} bytes", "send less")
    except web.HTTPException as error:
        refused = error_answer(error.status, HTTPStatus(error.status).phrase, "")
        if "Allow" in error.headers:
            refused.headers["Allow"] = error.headers["Allow"]
        return refused


class PageConnection(RequestHandler):
    """One connection; what is no HTTP gets a problem with the headers of every answer, too."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be read, or failed."""
        super().handle_error(request, status, exc, message)
        told = (message or HTTPStatus(status).phrase).partition("\n")[0]
        refused = error_answer(status, printable(told), "send a request of HTTP/1.1")
        refused.headers.update(HEADERS)
        refused.force_close()
        return refused


def _check_host(request: web.Request) -> None:
    for host in request.headers.getall("Host", []):
        name = host if _is_address(host) else _PORT.sub("", host.strip())
        if not _is_address(name.strip("[]")) and name.lower().removesuffix(".") not in request.app[NAMES]:
            remedy = "use an address, or the name that --host has"
            raise RefusalError(
                421, f"Host {shown(host)} is neither an address nor a name of this port", remedy
            )


def _check_site(request: web.Request) -> None:
    if not _OWN_SITES.issuperset(request.headers.getall("Sec-Fetch-Site", [])):
        problem = "pages of other sites and ports are not answered (Sec-Fetch-Site)"
        raise RefusalError(403, problem, "open the console itself")


def _check_change(request: web.Request) -> None:
    if request.app[READ_ONLY]:
        raise RefusalError(
            403, "this console changes nothing (--read-only)", "use another console, or `quorate`"
        )
    host = request.headers.get("Host", "")
    for origin in request.headers.getall("Origin", []):
        if origin not in (f"http://{host}", f"https://{host}"):
            problem = f"changes are not taken from pages of {shown(origin)}"
            raise RefusalError(403, problem, "open the console itself")
    given = request.headers.get(PROOF_HEADER, "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(given, request.app[TOKEN].encode()):
        remedy = f"send {PROOF_HEADER} with the token of GET /api/session; a page loads it again"
        raise RefusalError(403, f"a change needs the session's token in {PROOF_HEADER}", remedy)
    if request.content_type != "application/json":
        remedy = "send the header Content-Type: application/json"
        raise RefusalError(415, "a change needs Content-Type: application/json", remedy)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
