"""The application of an admin port, and the endpoints that every one has.

Unknown paths and wrong methods are answered from the table of endpoints, and so is the description of the
API. Errors are problems that say what to do. Decides nothing about the node and keeps no state.

Source: docs/http.md; RFC 9110 for status codes; RFC 9457 for problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Final, TypeAlias

from aiohttp import web

from quorum.admin.access import OPERATOR_PATHS, TOKENS, Tokens, authorize
from quorum.admin.endpoint import AdminEndpoint, Answer, Endpoints, Handler, answer, schema_of
from quorum.admin.guard import HOSTS, LOCAL_HOSTS, GuardError, guard, guard_change, lower_case
from quorum.admin.metrics import CONTENT_TYPE, MetricsPage
from quorum.admin.openapi import describe
from quorum.admin.view import STATUS_VIEW, BadInputError, StatusView, answer_to, error_answer, json_answer
from quorum.errors import QuorateError

#: Largest body of a request; every command fits in a few hundred bytes.
REQUEST_BYTES_MAX: Final = 64 * 1024

_METRICS: Final = web.AppKey[MetricsPage]("metrics")
_ENDPOINTS: Final = web.AppKey[Sequence[AdminEndpoint]]("endpoints")


LiveAnswer: TypeAlias = Annotated[Answer, answer(live=bool)]
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


def base_app(
    view: StatusView,
    endpoints: Sequence[AdminEndpoint] = STATUS_ENDPOINTS,
    *,
    hosts: Iterable[str] = LOCAL_HOSTS,
    tokens: tuple[bytes, bytes] | None = None,
) -> web.Application:
    """Return an application that answers a table of endpoints.

    Args:
        view: what the status endpoints show.
        endpoints: every endpoint, those of STATUS_ENDPOINTS included.
        hosts: names by which the port may be asked, besides literal addresses.
        tokens: for everything and for reading, of which requests need one; None: they need none.
    """
    app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[_answer_errors_in_json])
    app[STATUS_VIEW] = view
    app[HOSTS] = lower_case(hosts)
    if tokens is not None:
        app[TOKENS] = Tokens(*tokens)
        app[OPERATOR_PATHS] = frozenset(each.path for each in endpoints if each.operators)
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
    try:
        guard(request)
        authorize(request)
        # What is sent is not looked at where nothing takes it.
        if request.match_info.http_exception is None:
            guard_change(request)
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
