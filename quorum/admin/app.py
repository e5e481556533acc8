"""The application of an admin port, and the endpoints that every one has.

Unknown paths and wrong methods are answered from the table of endpoints, and so is the description of the
API. Errors are problems that say what to do. Decides nothing about the node and keeps no state.

Source: docs/reference/http.md; RFC 9110 for status codes; RFC 9457 for problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Final, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.access import (
    GATE,
    SESSION_S,
    Caller,
    Gate,
    Sessions,
    authorize,
    caller_of,
    cookie_name,
)
from quorum.admin.audited import AUDIT, AdminAudit
from quorum.admin.endpoint import SAID, AdminEndpoint, Answer, Endpoints, Handler, answer, schema_of
from quorum.admin.guard import (
    BEHIND_PROXY,
    HOSTS,
    LOCAL_HOSTS,
    GuardError,
    guard,
    guard_change,
    is_encrypted,
    lower_case,
)
from quorum.admin.metrics import CONTENT_TYPE, MetricsPage
from quorum.admin.openapi import describe
from quorum.admin.view import STATUS_VIEW, BadInputError, StatusView, answer_to, error_answer, json_answer
from quorum.config.admin_port import AdminHolder, AdminHolders, AdminRole
from quorum.errors import QuorateError
from quorum.platform.audit import AuditLog

#: Largest body of a request; every command fits in a few hundred bytes.
REQUEST_BYTES_MAX: Final = 64 * 1024

#: who asks where everybody may
_ANYBODY: Final = AdminHolder("", AdminRole.ADMIN)

_METRICS: Final = web.AppKey[MetricsPage]("metrics")
_ENDPOINTS: Final = web.AppKey[Sequence[AdminEndpoint]]("endpoints")


LiveAnswer: TypeAlias = Annotated[Answer, answer(live=bool)]
SessionAnswer: TypeAlias = Annotated[Answer, answer(name=str, role=str)]
ReadyAnswer: TypeAlias = Annotated[Answer, answer(ready=bool, reason=str)]
#: What every admin port answers, a node's or a broker's. GET answers HEAD, too.
STATUS_ENDPOINTS: Final = Endpoints()


@STATUS_ENDPOINTS.add("GET", "/livez", any_query=True)
async def _get_livez(_request: web.Request) -> LiveAnswer:
    """Whether the process answers."""
    return {"live": True}


@STATUS_ENDPOINTS.add("GET", "/readyz", status=(503,), any_query=True)
async def _get_readyz(request: web.Request) -> Annotated[web.Response, schema_of(ReadyAnswer)]:
    """Whether clients are served, with 503 if not."""
    ready, reason = request.app[STATUS_VIEW].readiness()
    return json_answer({"ready": ready, "reason": reason}, status=200 if ready else 503)


@STATUS_ENDPOINTS.add("GET", "/metrics", content=("text/plain",), any_query=True)
async def _get_metrics(request: web.Request) -> Annotated[web.Response, schema_of(str)]:
    """Metrics for Prometheus."""
    return web.Response(body=request.app[_METRICS].render(), headers={"Content-Type": CONTENT_TYPE})


@STATUS_ENDPOINTS.add("GET", "/v1/status", any_query=True)
async def _get_status(request: web.Request) -> dict[str, object]:
    """What this node is, and how far."""
    return dict(request.app[STATUS_VIEW].status())


@STATUS_ENDPOINTS.add("GET", "/v1/openapi.json")
async def _get_openapi(request: web.Request) -> dict[str, object]:
    """This description."""
    endpoints = request.app[_ENDPOINTS]
    return describe(endpoints)


@STATUS_ENDPOINTS.add("GET", "/v1/session")
async def _get_session(request: web.Request) -> SessionAnswer:
    """Who asks, and with which role; without tokens everybody has every role."""
    holder = caller_of(request).holder
    return {"name": "" if holder is None else holder.name, "role": (holder or _ANYBODY).role.name.lower()}


@STATUS_ENDPOINTS.add(
    "POST", "/v1/session", role=AdminRole.READER, optional_body=True, example="send no body, or {}"
)
async def _post_session(request: web.Request) -> Annotated[web.Response, schema_of(SessionAnswer)]:
    """Trade a token for a cookie, which a page of this port then sends by itself."""
    holder, gate = caller_of(request).holder, request.app[GATE]
    if holder is None:
        return error_answer(409, "this port asks for no token", "ask without a session")
    gate.sessions.end(request.cookies.get(cookie_name(request), ""))
    response = json_answer({"name": holder.name, "role": holder.role.name.lower()})
    response.set_cookie(
        cookie_name(request),
        gate.sessions.begin(holder),
        max_age=SESSION_S,
        secure=is_encrypted(request),
        httponly=True,
        samesite="Strict",
    )
    return response


@STATUS_ENDPOINTS.add("DELETE", "/v1/session", role=AdminRole.READER)
async def _delete_session(request: web.Request) -> Annotated[web.Response, schema_of(SessionAnswer)]:
    """End the session of a cookie."""
    holder = caller_of(request).holder
    request.app[GATE].sessions.end(request.cookies.get(cookie_name(request), ""))
    answered = {"name": "" if holder is None else holder.name, "role": (holder or _ANYBODY).role.name.lower()}
    response = json_answer(answered)
    response.del_cookie(cookie_name(request), secure=is_encrypted(request), httponly=True, samesite="Strict")
    return response


class AdminPort(NamedTuple):
    """How a port may be asked.

    Attributes:
        hosts: names by which, besides literal addresses.
        holders: who may; None: everybody.
        behind_proxy: whether a proxy before it encrypts.
        audit: where changes and refusals are noted; None: nowhere.
    """

    hosts: Iterable[str] = LOCAL_HOSTS
    holders: AdminHolders | None = None
    behind_proxy: bool = False
    audit: AuditLog | None = None


_PLAIN: Final = AdminPort()


def base_app(
    view: StatusView, endpoints: Sequence[AdminEndpoint] = STATUS_ENDPOINTS, port: AdminPort = _PLAIN
) -> web.Application:
    """Return an application that answers a table of endpoints.

    Args:
        view: what the status endpoints show.
        endpoints: every endpoint, those of STATUS_ENDPOINTS included.
        port: how it may be asked.
    """
    app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[_answer_errors_in_json])
    app[STATUS_VIEW] = view
    app[HOSTS] = lower_case(port.hosts)
    app[BEHIND_PROXY] = port.behind_proxy
    roles = {(each.method, each.path): each.role for each in endpoints}
    app[GATE] = Gate(port.holders, Sessions(), roles)
    app[AUDIT] = None if port.audit is None else AdminAudit(port.audit)
    app[_ENDPOINTS] = endpoints
    app[_METRICS] = MetricsPage(view.metrics)
    for endpoint in endpoints:
        app.router.add_route(endpoint.method, endpoint.path, endpoint.handler)
        if endpoint.method == "GET":
            app.router.add_route("HEAD", endpoint.path, endpoint.handler)
    app.on_response_prepare.append(_forbid_caching)
    return app


@web.middleware
async def _answer_errors_in_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    caller, audit = caller_of(request), request.app[AUDIT]
    if audit is None:
        return await _answer_to(request, handler, caller)
    status, said = 500, dict[str, object]()
    SAID.set(said)
    try:
        response = await _answer_to(request, handler, caller)
        status = response.status
        return response
    finally:
        audit.answered(request, caller.principal, status, said)


async def _answer_to(request: web.Request, handler: Handler, caller: Caller) -> web.StreamResponse:
    try:
        guard(request)
        authorize(request, caller)
        # What is sent is not looked at where nothing takes it.
        if request.match_info.http_exception is None:
            guard_change(request, proved=caller.holder is not None)
        return await handler(request)
    except GuardError as error:
        refused = error_answer(error.status, error.problem, error.remedy)
        if error.status == HTTPStatus.UNAUTHORIZED:
            refused.headers["WWW-Authenticate"] = "Bearer"
        return refused
    except BadInputError as error:
        more = {"field": error.field} if error.field else {}
        return error_answer(400, error.problem, error.remedy, **more)
    except QuorateError as error:
        return answer_to(error)
    except web.HTTPNotFound:
        known = [f"{endpoint.method} {endpoint.path}" for endpoint in request.app[_ENDPOINTS]]
        remedy = "use one of the known endpoints"
        return error_answer(404, f"nothing is at {request.path}", remedy, known=known)
    except web.HTTPMethodNotAllowed as error:
        allowed = sorted(error.allowed_methods)
        response = error_answer(
            405, f"{request.path} does not take {request.method}", f"use {' or '.join(allowed)}"
        )
        response.headers["Allow"] = ", ".join(allowed)
        return response
    except web.HTTPRequestEntityTooLarge:
        problem = f"the body is larger than {REQUEST_BYTES_MAX} bytes"
        return error_answer(413, problem, "send less")
    except web.HTTPException as error:
        return error_answer(error.status, error.reason, "")


async def _forbid_caching(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"
